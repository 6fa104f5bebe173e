"""A new checkpoint is made whole or not at all, and never over another."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from catalogs import QUERY, Hands, catalog, file_query, target

from golden import NAMES, golden, golden_on_disk
from holdfast import savepoints
from holdfast.checkpoints.verification.verifying import verify
from holdfast.clock import now_ms
from holdfast.errors import Conflict, Corrupt, Invalid, NotFound
from holdfast.ownership.checkpoint_lock import Owner, fence, holder, lock_path, reserved
from holdfast.savepoints.leases import TakeLease
from holdfast.savepoints.restoring import RestoreKind
from holdfast.storage.local import LocalStorage
from holdfast.storage.memory import MemoryStorage


@pytest.mark.parametrize("name", NAMES)
def test_a_fork_has_an_id_of_its_own_and_the_same_state(name: str) -> None:
    hands, into = Hands(), catalog()
    taken = hands.take(golden(name), into).manifest
    same, other, third = target("same"), target("other"), target("third")
    hands.restore(into, taken.savepoint_id, same)
    for each in (other, third):
        made = hands.fork(into, taken.savepoint_id, each)
        assert json.loads(each.read("metadata")) == {"id": made.query_id}
        assert uuid.UUID(made.query_id).version == 4
    ids = [json.loads(each.read("metadata"))["id"] for each in (same, other, third)]
    assert ids[0] == taken.query_id
    assert len(set(ids)) == 3
    assert {path for path in same.files if path not in other.files} <= {".metadata.crc"}
    for each in (same, other):
        found = verify(each)
        assert (found.problems, found.batch_id) == ((), taken.batch_id)


def test_paths_of_schemas_lead_into_the_new_checkpoint(tmp_path: Path) -> None:
    name = next(name for name in NAMES if "state-format2" in name)
    source = golden_on_disk(name, tmp_path / "ck")
    taken = savepoints.take(source, tmp_path / "catalog")
    savepoints.restore(taken.uri, tmp_path / "new place")
    files = list((tmp_path / "new place/state/0/_metadata/v2").iterdir())
    assert files
    for file in files:
        text = json.loads(file.read_text().split("\n")[1])
        paths = [path for store in text["stateStoreInfo"] for path in store["stateSchemaFilePaths"]]
        assert paths
        for path in paths:
            assert path.startswith(f"file:{tmp_path}/new place/state/0/_stateSchema/")
            assert Path(path.removeprefix("file:")).is_file()


def test_it_tells_where_it_came_from_and_is_taken_again() -> None:
    hands, into, new = Hands(), catalog(), target()
    taken = hands.take(MemoryStorage(file_query(3)), into, label="first").manifest
    hands.restore(into, taken.savepoint_id, new)
    origin = json.loads(new.read("_holdfast/origin.json"))
    assert origin["savepoint"] == f"memory://catalog/savepoints/{taken.savepoint_id}"
    assert (origin["operation"], origin["label"], origin["batch"]) == ("restore", "first", 2)
    again = hands.take(new, into).manifest
    last = target("last")
    hands.restore(into, again.savepoint_id, last)
    assert json.loads(last.read("_holdfast/origin.json"))["from_checkpoint"] == "memory://new"


@pytest.mark.parametrize("name", ["_holdfast", "state", "state/0/1", "sources/0", "offsets"])
def test_nothing_is_restored_through_a_link_in_the_target(tmp_path: Path, name: str) -> None:
    taken = savepoints.take(golden_on_disk("4.2/aggregate-changelog", tmp_path / "ck"), tmp_path / "catalog")
    victim, link = tmp_path / "victim", tmp_path / "new" / name
    victim.mkdir()
    link.parent.mkdir(parents=True)
    link.symlink_to(victim)
    with pytest.raises(Corrupt, match="refused to follow a symbolic link") as caught:
        savepoints.restore(taken.uri, tmp_path / "new")
    assert caught.value.where == f"file://{link}"
    assert list(victim.iterdir()) == []


def test_a_target_below_a_link_is_the_person_s_own(tmp_path: Path) -> None:
    taken = savepoints.take(golden_on_disk("4.2/aggregate-changelog", tmp_path / "ck"), tmp_path / "catalog")
    (tmp_path / "disk").mkdir()
    (tmp_path / "here").symlink_to(tmp_path / "disk")
    savepoints.restore(taken.uri, tmp_path / "here" / "new")
    assert verify(LocalStorage(tmp_path / "disk/new")).problems == ()


@pytest.mark.parametrize("path", ["_holdfast/usercustomize.py", "json.py", "offsets/.7.tmp"])
def test_a_savepoint_with_a_file_of_another_name_is_not_restored(path: str) -> None:
    hands, into, new = Hands(), catalog(), target()
    taken = hands.take(MemoryStorage(file_query(3)), into).manifest
    metadata = next(file for file in taken.files if file.path == "metadata")
    files = sorted([*taken.files, replace(metadata, path=path)], key=lambda file: file.path)
    where = f"savepoints/{taken.savepoint_id}/manifest.json"
    into.write(where, replace(taken, files=tuple(files)).render(), replace=True)
    with pytest.raises(Corrupt, match="contains an unexpected file") as caught:
        hands.restore(into, taken.savepoint_id, new)
    assert caught.value.found == path
    assert new.files == {}


@pytest.mark.parametrize(
    "there",
    [{"metadata": b"{}"}, {"notes.txt": b"mine"}, {"offsets/0": b"v1"}, {"_holdfast/origin.json": b"{}"}],
)
def test_a_target_that_exists_is_refused(there: dict[str, bytes]) -> None:
    hands, into = Hands(), catalog()
    taken = hands.take(MemoryStorage(file_query(3)), into).manifest
    new = MemoryStorage(there, uri="memory://new")
    with pytest.raises(Conflict, match="the directory of the new checkpoint is not empty"):
        hands.restore(into, taken.savepoint_id, new)
    assert new.files == there


def test_a_finished_restore_will_do_only_for_who_asks_for_it_and_if_untouched() -> None:
    hands, into, new = Hands(), catalog(), target()
    checkpoint = MemoryStorage(file_query(3))
    one, other = (hands.take(checkpoint, into, batch).manifest for batch in (1, 2))
    hands.restore(into, one.savepoint_id, new)
    before = new.files
    hands.restore(into, one.savepoint_id, new)
    assert new.files == before
    with pytest.raises(Conflict, match="the directory of the new checkpoint is not empty") as refused:
        hands.make(into, one.savepoint_id, new, RestoreKind.RESTORE, again=False)
    assert "finished" in str(refused.value.found)
    with pytest.raises(Conflict, match="the directory of the new checkpoint is not empty"):
        hands.restore(into, other.savepoint_id, new)
    with pytest.raises(Conflict, match="the directory of the new checkpoint is not empty"):
        hands.fork(into, one.savepoint_id, new)
    new.write("offsets/2", b"v1\n{}\n-")
    with pytest.raises(Conflict, match="the directory of the new checkpoint is not empty"):
        hands.restore(into, one.savepoint_id, new)


def test_a_damaged_savepoint_is_refused_before_anything_is_touched() -> None:
    hands, into, new = Hands(), catalog(), target()
    taken = hands.take(MemoryStorage(file_query(3)), into).manifest
    path = next(path for path in into.files if path.startswith("objects/"))
    into.write(path, into.read(path) + b"!", replace=True)
    for make in (hands.restore, hands.fork):
        with pytest.raises(Corrupt, match="nothing was done") as error:
            make(into, taken.savepoint_id, new)
        assert path in (error.value.where or "")
    assert new.files == {}


def test_there_is_no_such_savepoint() -> None:
    with pytest.raises(NotFound, match="the savepoint does not exist"):
        Hands().restore(catalog(), "20260305T080000.000Z-1f0c33aa-b41-9d2e", target())


def test_a_target_in_the_catalog() -> None:
    hands, into = Hands(), catalog()
    taken = hands.take(MemoryStorage(file_query(3)), into).manifest
    with pytest.raises(Invalid, match="cannot contain one another"):
        hands.restore(into, taken.savepoint_id, MemoryStorage(uri="memory://catalog/objects"))


def test_claim_deletes_the_savepoint_and_leaves_the_checkpoint(tmp_path: Path) -> None:
    name = next(name for name in NAMES if "aggregate-format2" in name)
    source = golden_on_disk(name, tmp_path / "ck")
    kept = savepoints.take(source, tmp_path / "catalog")
    taken = savepoints.take(source, tmp_path / "catalog")
    made = savepoints.restore(taken.uri, tmp_path / "new", claim=True)
    assert made.linked_bytes > 0
    assert [each.uri for each in savepoints.list(tmp_path / "catalog")] == [kept.uri]
    assert verify(LocalStorage(tmp_path / "new")).ok
    savepoints.delete(kept.uri)
    assert [path for path in (tmp_path / "catalog").rglob("*") if path.is_file()] == []
    assert verify(LocalStorage(tmp_path / "new")).ok
    assert verify(LocalStorage(source)).ok


def test_a_claim_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    saved = savepoints.take(golden_on_disk("4.2/aggregate-memory", tmp_path / "ck"), tmp_path / "sp").uri
    busy = TakeLease(LocalStorage(tmp_path / "sp"), "somebody", now_ms)
    busy.begin()
    with pytest.raises(Conflict, match="a savepoint is being taken into this catalog"):
        savepoints.restore(saved, tmp_path / "new", claim=True)
    assert not (tmp_path / "new").exists()


def test_a_claim_that_fails_afterwards_says_what_is_there(tmp_path: Path) -> None:
    saved = savepoints.take(golden_on_disk("4.2/aggregate-memory", tmp_path / "ck"), tmp_path / "sp").uri
    busy = TakeLease(LocalStorage(tmp_path / "sp"), "somebody", now_ms)

    def begin(done: int, total: int, what: str) -> None:
        if what == "copying" and done == total:
            busy.begin()

    with pytest.raises(Conflict, match="complete, but the savepoint was not deleted") as told:
        savepoints.restore(saved, tmp_path / "new", claim=True, tell=begin)
    assert told.value.where == f"file://{tmp_path}/new"
    assert "a savepoint is being taken into this catalog" in (told.value.found or "")
    assert f"holdfast savepoint delete {saved}" in (told.value.hint or "")
    busy.end()
    assert verify(LocalStorage(tmp_path / "new")).ok
    assert savepoints.verify(saved).ok


@pytest.mark.parametrize(
    "make",
    [
        savepoints.restore,
        savepoints.fork,
        pytest.param(partial(savepoints.restore, drop_expired=True), id="restore without what has expired"),
    ],
)
def test_no_job_begins_where_a_checkpoint_is_being_made(
    make: Callable[..., savepoints.Restored], tmp_path: Path
) -> None:
    """A job was there before, so its lock still lies beside the directory."""
    saved = savepoints.take(golden_on_disk("4.2/aggregate-memory", tmp_path / "ck"), tmp_path / "sp").uri
    place = tmp_path / "new"
    lock = lock_path(f"file://{place}", Path())
    assert fence(lock, Owner("shop", "/nowhere", 12))
    with reserved(lock, "state erase"), pytest.raises(Conflict, match="in use by another command"):
        make(saved, place)
    assert not place.exists()
    verbs: set[str] = set()

    def tell(_done: int, _total: int, _what: str) -> None:
        owner = holder(lock)
        verbs.add("nobody" if owner is None else owner.verb)

    made = make(saved, place, tell=tell)
    assert verbs == {"fork" if make is savepoints.fork else "restore"}
    assert holder(lock) is None
    assert verify(LocalStorage(place)).batch_id == made.batch_id


def test_what_is_no_address_of_a_savepoint(tmp_path: Path) -> None:
    for given in (tmp_path, tmp_path / "savepoints", tmp_path / "savepoints" / "nonsense", ""):
        with pytest.raises(Invalid):
            savepoints.show(given)


def test_a_query_id_is_kept() -> None:
    hands, into, new = Hands(), catalog(), target()
    taken = hands.take(MemoryStorage(file_query(3)), into).manifest
    assert hands.restore(into, taken.savepoint_id, new).query_id == QUERY
