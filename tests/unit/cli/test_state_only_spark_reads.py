"""Verbs on a checkpoint whose state is in a database without a client in Python: one refusal for all."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import Holdfast

from golden import golden_with_confs
from holdfast.config.spark_defaults import TIKV_PROVIDER

VERBS = (
    "checkpoint show {place}",
    "checkpoint history {place}",
    "checkpoint verify {place}",
    "savepoint take {place} {new}",
    "savepoint take {place} {new} --every 1m",
    "state list {place}",
    "state get {place} a",
    "state scan {place}",
    "state diff {place} {place}",
    "state migrate {place} {new} --backend rocksdb --confirm-stopped",
    "state history {place} a",
    "rescale {place} {new} --partitions 3 --confirm-stopped",
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A checkpoint that is fixed to TiKV."""
    made = golden_with_confs("4.2/aggregate-memory", **{"stateStore.providerClass": TIKV_PROVIDER})
    folder = tmp_path / "checkpoint"
    for path, data in made.files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return folder


@pytest.mark.parametrize("words", VERBS)
def test_a_verb_says_that_it_cannot_read_the_state(
    holdfast: Holdfast, place: Path, tmp_path: Path, words: str
) -> None:
    before = {path: path.stat().st_mtime_ns for path in place.rglob("*")}
    said = holdfast(*words.format(place=place, new=tmp_path / "new").split())
    assert said.returncode == 7, said.stdout + said.stderr
    assert said.stderr.startswith("error: the state of the checkpoint cannot be read, because it is in")
    assert f"found {TIKV_PROVIDER}" in " ".join(said.stderr.split())
    assert "hint: the query can continue" in said.stderr
    assert not (tmp_path / "new").exists()
    assert {path: path.stat().st_mtime_ns for path in place.rglob("*")} == before
