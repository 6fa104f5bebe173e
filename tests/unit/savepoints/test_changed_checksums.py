"""A flipped bit of a log is found in a checkpoint that Holdfast has written, as in one of Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast as hf
from golden import golden_on_disk
from holdfast import layout

Change = Callable[[Path, Path], object]


def forked(source: Path, target: Path) -> object:
    """A fork, which has a query id of its own."""
    return hf.savepoints.fork(hf.savepoints.take(source, source.with_name("savepoints")).uri, target)


def rescaled(source: Path, target: Path) -> object:
    """A rescale, whose logs are those of a maintenance batch."""
    return hf.savepoints.rescale(source, target, partitions=3, stopped=True)


@pytest.mark.parametrize("change", [forked, rescaled])
def test_a_flipped_bit_in_any_log_is_found(change: Change, tmp_path: Path) -> None:
    source, target = golden_on_disk("4.2/keyed-format2", tmp_path / "checkpoint"), tmp_path / "changed"
    change(source, target)
    assert hf.checkpoints.verify(target).ok
    files = [
        target / layout.METADATA,
        *(target / "offsets").glob("[0-9]*"),
        *(target / "commits").glob("[0-9]*"),
    ]
    assert len(files) == 5
    for file in files:
        before = file.read_bytes()
        # A digit for a digit: whoever parses the file finds nothing wrong with it.
        at = next(place for place, byte in enumerate(before) if place > 2 and chr(byte) in "02468")
        file.write_bytes(before[:at] + bytes([before[at] ^ 1]) + before[at + 1 :])
        found = hf.checkpoints.verify(target)
        assert str(file.relative_to(target)) in {problem.file for problem in found.problems}, file
        file.write_bytes(before)
    assert hf.checkpoints.verify(target).ok


def test_a_checkpoint_without_checksums_gets_none(tmp_path: Path) -> None:
    source, target = golden_on_disk("4.2/keyed-format2", tmp_path / "checkpoint"), tmp_path / "changed"
    for file in source.rglob(".*.crc"):
        file.unlink()
    rescaled(source, target)
    assert [*target.rglob(".*.crc")] == []
