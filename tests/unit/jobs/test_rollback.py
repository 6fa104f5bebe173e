"""A note of a fallback that somebody else has written, beside and in a job's checkpoint."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from golden import golden_on_disk
from holdfast import savepoints
from holdfast.errors import Corrupt
from holdfast.jobs.rollback import finish, under_way

STAMP = "20260305T080000Z"
NOTE = ".holdfast.fallback.json"


def fields(**others: object) -> dict[str, object]:
    """The fields of a note that passes, with some of them changed."""
    catalog = "file:///nowhere/.queries.holdfast.fallback"
    savepoint = f"{catalog}/savepoints/20260305T080000.000Z-1f0c33aa-b41-9d2e"
    return {"query": "q", "stamp": STAMP, "savepoint": savepoint, "batch_id": 1, "newest": 2, **others}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """The checkpoint of a job with several queries, one of which is `q`."""
    made = tmp_path / "checkpoint"
    (made / "q").mkdir(parents=True)
    return made


def test_paths_follow_from_where_the_note_is(checkpoint: Path) -> None:
    planted = fields(checkpoint="file:///etc", aside="/srv/json", own=True)
    (checkpoint / f".q{NOTE}").write_text(json.dumps(planted))
    (checkpoint.parent / f".checkpoint{NOTE}").write_text(json.dumps({**planted, "query": "another name"}))
    own, below = under_way(checkpoint.as_uri())
    assert (own.checkpoint, own.aside) == (checkpoint.as_uri(), f"{checkpoint}.damaged-{STAMP}")
    assert (below.checkpoint, below.aside) == ((checkpoint / "q").as_uri(), f"{checkpoint}/q.damaged-{STAMP}")
    assert (own.own, below.own) == (False, False)


@pytest.mark.parametrize(
    "wrong",
    [
        {"stamp": "x/../../../json"},
        {"stamp": f"{STAMP}\n"},
        {"stamp": 7},
        {"query": "other"},
        {"batch_id": "1"},
        {"newest": True},
        {"savepoint": None},
    ],
    ids=str,
)
def test_a_note_with_other_values_is_refused(checkpoint: Path, wrong: dict[str, object]) -> None:
    note = checkpoint / f".q{NOTE}"
    note.write_text(json.dumps(fields(**wrong)))
    with pytest.raises(Corrupt, match="the file of an unfinished fallback is damaged") as caught:
        under_way(checkpoint.as_uri())
    assert caught.value.where == str(note)
    assert "delete this file" in (caught.value.hint or "")


@pytest.mark.parametrize("text", ["", "[" * 100_000, "[]", "\xff"], ids=["empty", "deep", "list", "bytes"])
def test_a_note_that_is_no_json_object_is_refused(checkpoint: Path, text: str) -> None:
    (checkpoint / f".q{NOTE}").write_bytes(text.encode("latin-1"))
    with pytest.raises(Corrupt, match="the file of an unfinished fallback is damaged"):
        under_way(checkpoint.as_uri())


@pytest.mark.parametrize("kind", ["directory", "FIFO", "dangling link"])
def test_what_is_no_regular_file_is_no_note(checkpoint: Path, kind: str) -> None:
    note = checkpoint / f".q{NOTE}"
    if kind == "directory":
        note.mkdir()
    elif kind == "FIFO":
        os.mkfifo(note)
    else:
        note.symlink_to(checkpoint / "nothing")
    assert under_way(checkpoint.as_uri()) == []


def test_a_savepoint_of_a_stranger_is_not_restored(tmp_path: Path, checkpoint: Path) -> None:
    other = golden_on_disk("4.2/aggregate-changelog", tmp_path / "other")
    taken = savepoints.take(other, tmp_path / "catalog")
    (checkpoint / f".q{NOTE}").write_text(json.dumps(fields(savepoint=taken.uri)))
    (way,) = under_way(checkpoint.as_uri())
    with pytest.raises(Corrupt, match="outside the job's catalogs") as caught:
        finish(way, [])
    assert caught.value.found == taken.uri
    with pytest.raises(Corrupt, match="of a different checkpoint") as caught:
        finish(way, [str(tmp_path / "catalog")])
    assert other.as_uri() in (caught.value.found or "")
    assert [path.name for path in checkpoint.iterdir() if not path.name.startswith(".")] == ["q"]


def test_a_fallback_does_not_restore_through_a_link(tmp_path: Path, checkpoint: Path) -> None:
    query, elsewhere = checkpoint / "q", tmp_path / "elsewhere"
    query.rmdir()
    golden_on_disk("4.2/aggregate-changelog", query)
    taken = savepoints.take(query, checkpoint / ".q.holdfast.fallback")
    (checkpoint / f".q{NOTE}").write_text(json.dumps(fields(savepoint=taken.uri)))
    query.rename(f"{query}.damaged-{STAMP}")
    elsewhere.mkdir()
    query.symlink_to(elsewhere)
    (way,) = under_way(checkpoint.as_uri())
    with pytest.raises(Corrupt, match="the checkpoint's path is a symbolic link"):
        finish(way, [])
    assert list(elsewhere.iterdir()) == []
