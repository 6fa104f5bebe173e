"""Which checkpoints are at an address."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.checkpoints.discovery import CheckpointAddress
from holdfast.errors import Invalid


def checkpoint(folder: Path) -> str:
    """What Spark makes before the first batch."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"a9dec4b3-ead2-45b9-984a-9c5769ffdee9"}')
    return f"file://{folder}"


def test_a_checkpoint_is_at_its_own_address(tmp_path: Path) -> None:
    uri = checkpoint(tmp_path / "clicks")
    assert CheckpointAddress(tmp_path / "clicks").find() == (uri,)
    assert CheckpointAddress(uri).find() == (uri,)
    assert CheckpointAddress("clicks", tmp_path).find() == (uri,)


def test_a_directory_has_its_own_checkpoints_and_those_one_level_further_below(tmp_path: Path) -> None:
    one = checkpoint(tmp_path / "clicks")
    two = checkpoint(tmp_path / "shop" / "orders")
    checkpoint(tmp_path / "a" / "b" / "c")
    assert CheckpointAddress(tmp_path).find() == (one, two)


def test_what_is_no_checkpoint_is_left_out(tmp_path: Path) -> None:
    one = checkpoint(tmp_path / "clicks")
    for name in (".hidden", "clicks.savepoints", "day=1", "_delta_log"):
        checkpoint(tmp_path / name)
    (tmp_path / "table" / "metadata").mkdir(parents=True)  # as Iceberg has it
    (tmp_path / "part-0.parquet").write_bytes(b"rows")
    assert CheckpointAddress(tmp_path).find() == (one,)


def test_checkpoints_inside_a_checkpoint_are_not_looked_for(tmp_path: Path) -> None:
    one = checkpoint(tmp_path / "clicks")
    checkpoint(tmp_path / "clicks" / "inner")
    assert CheckpointAddress(tmp_path).find() == (one,)


def test_patterns_match_any_segment_of_the_path(tmp_path: Path) -> None:
    wanted = [checkpoint(tmp_path / team / "checkpoints" / "clicks") for team in ("team-a", "team-b")]
    checkpoint(tmp_path / "other" / "checkpoints" / "clicks")
    assert CheckpointAddress(tmp_path / "team-*" / "checkpoints").find() == tuple(wanted)
    assert CheckpointAddress(tmp_path / "team-[b]" / "*" / "click?").find() == (wanted[1],)
    assert CheckpointAddress(tmp_path / "nothing-*").find() == ()


def test_a_new_checkpoint_is_found_by_the_next_look(tmp_path: Path) -> None:
    address = CheckpointAddress(tmp_path / "later")
    assert address.find() == ()
    uri = checkpoint(tmp_path / "later" / "clicks")
    assert address.find() == (uri,)


def test_a_pattern_in_the_name_of_a_bucket_is_refused() -> None:
    with pytest.raises(Invalid, match="bucket"):
        CheckpointAddress("s3://team-*/checkpoints")
    assert CheckpointAddress("s3://bucket/*/checkpoints").uri == "s3a://bucket/*/checkpoints"
