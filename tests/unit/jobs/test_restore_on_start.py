"""Checkpoints of a job's queries that are made of savepoints before the first start."""

from __future__ import annotations

from pathlib import Path

import pytest

from golden import golden_on_disk
from holdfast import checkpoints, savepoints
from holdfast.errors import Conflict, Invalid, NotFound
from holdfast.jobs.processes.restore_on_start import restore_all

NAME = "4.2/aggregate-memory"


@pytest.fixture
def taken(tmp_path: Path) -> str:
    return savepoints.take(golden_on_disk(NAME, tmp_path / "ck"), tmp_path / "catalog").uri


def test_the_only_query_needs_no_name(taken: str, tmp_path: Path) -> None:
    for number, name in enumerate(("", "totals")):
        place = tmp_path / f"new-{number}"
        [(query, made)] = restore_all({name: taken}, {"totals": place.as_uri()})
        assert (query, made.batch_id) == ("totals", 11)
        assert checkpoints.verify(place).ok


def test_several_queries_are_named(taken: str, tmp_path: Path) -> None:
    places = {name: (tmp_path / "job" / name).as_uri() for name in ("one", "two")}
    found = list(restore_all({"two": taken, "one": taken}, places))
    assert [query for query, _ in found] == ["two", "one"]
    assert all(checkpoints.verify(place).ok for place in places.values())
    # A driver that was killed in it is followed by one that finishes it.
    (tmp_path / "job" / "one" / "metadata").unlink()
    assert len(list(restore_all({"two": taken, "one": taken}, places))) == 2
    assert checkpoints.verify(places["one"]).ok


@pytest.mark.parametrize("given", ["", "three"])
def test_who_is_meant_must_be_clear(taken: str, tmp_path: Path, given: str) -> None:
    places = {name: (tmp_path / "job" / name).as_uri() for name in ("one", "two")}
    with pytest.raises(Invalid) as caught:
        list(restore_all({"one": taken, given: taken}, places))
    assert caught.value.expected == "one or two"
    assert not (tmp_path / "job").exists()


def test_a_checkpoint_that_exists_is_never_overwritten(taken: str, tmp_path: Path) -> None:
    place = golden_on_disk(NAME, tmp_path / "there")
    before = {file: file.read_bytes() for file in place.rglob("*") if file.is_file()}
    with pytest.raises(Conflict, match="cannot be restored from a savepoint") as caught:
        list(restore_all({"": taken}, {"totals": place.as_uri()}))
    assert caught.value.hint is not None
    assert "omit -s" in caught.value.hint
    assert {file: file.read_bytes() for file in place.rglob("*") if file.is_file()} == before


def test_a_savepoint_that_is_not_there(taken: str, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="the savepoint does not exist"):
        list(restore_all({"": f"{taken[:-4]}0000"}, {"totals": (tmp_path / "new").as_uri()}))
    assert not (tmp_path / "new").exists()
