"""A checkpoint that has query's id is missing goes on under the id that a savepoint of the query has."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from golden import golden_on_disk
from holdfast import checkpoints, savepoints
from holdfast.checkpoints.state.contents import contents
from holdfast.config.checks import place_word
from holdfast.errors import Conflict, Corrupt, Invalid
from holdfast.storage.local import LocalStorage

NAME = "4.2/aggregate-changelog"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return golden_on_disk(NAME, tmp_path / "checkpoint")


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint.savepoints"


def lose_id(checkpoint: Path) -> str:
    query_id: str = json.loads((checkpoint / "metadata").read_text())["id"]
    (checkpoint / "metadata").unlink()
    (checkpoint / ".metadata.crc").unlink(missing_ok=True)
    return query_id


def test_the_newest_batch_is_saved_under_the_id_of_an_older_savepoint(
    checkpoint: Path, catalog: Path, tmp_path: Path
) -> None:
    older = savepoints.take(checkpoint, catalog, batch=10)
    before = contents(LocalStorage(checkpoint))
    files = {path: path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()}
    query_id = lose_id(checkpoint)
    with pytest.raises(Corrupt, match="query's id is missing") as caught:
        savepoints.take(checkpoint, catalog)
    hint = caught.value.hint or ""
    assert f"--id-of {place_word(older.uri)}" in hint
    assert f"holdfast restore {place_word(older.uri)} NEW" in hint
    taken = savepoints.take(checkpoint, catalog, id_of=place_word(older.uri))
    assert (taken.manifest.query_id, taken.manifest.batch_id) == (query_id, 11)
    savepoints.restore(taken.uri, tmp_path / "made")
    assert json.loads((tmp_path / "made" / "metadata").read_text())["id"] == query_id
    assert contents(LocalStorage(tmp_path / "made")) == before
    assert checkpoints.verify(tmp_path / "made").ok
    # The damaged checkpoint stays as it is.
    assert not (checkpoint / "metadata").exists()
    left = {path: path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()}
    assert left.items() < files.items()


def test_without_a_known_savepoint_the_hint_says_what_one_is_good_for(
    checkpoint: Path, catalog: Path
) -> None:
    lose_id(checkpoint)
    with pytest.raises(Corrupt) as caught:
        savepoints.take(checkpoint, catalog)
    assert "restore the file from a copy" in (caught.value.hint or "")
    assert "--id-of SAVEPOINT" in (caught.value.hint or "")
    assert "checkpoint verify" not in (caught.value.hint or "")


def test_the_id_of_another_query_is_refused(checkpoint: Path, catalog: Path, tmp_path: Path) -> None:
    other = golden_on_disk("4.2/aggregate-memory", tmp_path / "other")
    foreign = savepoints.take(other, tmp_path / "others")
    lose_id(checkpoint)
    with pytest.raises(Conflict, match="a different query"):
        savepoints.take(checkpoint, catalog, id_of=foreign.uri)


def test_a_checkpoint_that_has_its_id_gets_no_other(checkpoint: Path, catalog: Path) -> None:
    taken = savepoints.take(checkpoint, catalog)
    with pytest.raises(Invalid, match="still has a query id"):
        savepoints.take(checkpoint, catalog, id_of=taken.uri)


def test_verify_names_the_savepoint_that_has_the_id(
    checkpoint: Path, catalog: Path, holdfast: Callable[..., Any]
) -> None:
    older = savepoints.take(checkpoint, catalog, batch=10)
    lose_id(checkpoint)
    ran = holdfast("checkpoint", "verify", str(checkpoint), "--json")
    assert ran.returncode == 6
    [problem] = json.loads(ran.stdout)["problems"]
    assert problem["file"] == "metadata"
    assert older.manifest.savepoint_id in problem["hint"]
    named = f"{catalog}/{older.manifest.savepoint_id}"
    made = holdfast("savepoint", "take", str(checkpoint), str(catalog), "--id-of", named)
    assert made.returncode == 0
