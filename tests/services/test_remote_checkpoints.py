"""Savepoints on a real S3 gateway and a real HDFS: taken, proved, restored, forked, rescaled, removed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import Holdfast
from tasks_here import as_executors

from golden import golden_files, golden_on_disk, without_checksums
from holdfast import checkpoints, savepoints
from holdfast.checkpoints.state.contents import contents
from holdfast.errors import Conflict, Corrupt, NotFound
from holdfast.storage import open_storage

pytestmark = pytest.mark.services

# With lineage and metadata that holds paths; with full data files; of the memory provider.
KINDS = ["4.2/state-format2", "4.2/aggregate-rocksdb", "4.2/aggregate-memory"]


@pytest.fixture(params=["s3", "webhdfs"])
def place(request: pytest.FixtureRequest) -> str:
    """An empty bucket or directory."""
    if request.param == "s3":
        return str(request.getfixturevalue("s3_gateway").bucket())
    return str(request.getfixturevalue("hdfs_cluster").root())


def made(place: str, name: str) -> str:
    """A golden checkpoint there, as Spark's file systems leave it."""
    uri = f"{place}/jobs/checkpoint"
    storage = open_storage(uri)
    for path, data in without_checksums(golden_files(name)).items():
        storage.write(path, data)
    return uri


def files(uri: str) -> dict[str, bytes]:
    """What is below an address."""
    storage = open_storage(uri)

    def below(folder: str) -> Iterator[str]:
        listed = storage.list(folder)
        for name in listed.names:
            path = f"{folder}/{name}" if folder else name
            if listed.size(name) is None:
                yield from below(path)
            else:
                yield path

    return {path: storage.read(path) for path in below("")}


@pytest.mark.parametrize("name", KINDS)
def test_a_checkpoint_elsewhere_is_saved_and_comes_back(place: str, name: str) -> None:
    source = made(place, name)
    before = files(source)
    assert checkpoints.read(source).batch_id is not None
    taken = savepoints.take(source, f"{place}/savepoints", deep=True)
    again = savepoints.take(source, f"{place}/savepoints")
    assert again.manifest.new_bytes == 0
    assert savepoints.verify(taken.uri, deep=True).problems == ()
    restored = savepoints.restore(taken.uri, f"{place}/restored")
    forked = savepoints.fork(taken.uri, f"{place}/forked")
    held = contents(open_storage(source), taken.manifest.batch_id)
    for each in (restored, forked):
        assert checkpoints.verify(each.checkpoint).problems == ()
        assert contents(open_storage(each.checkpoint)) == held
    kept, new = (json.loads(files(each.checkpoint)["metadata"])["id"] for each in (restored, forked))
    assert kept == taken.manifest.query_id != new
    assert files(source) == before
    with pytest.raises(Conflict):
        savepoints.restore(taken.uri, f"{place}/restored")


def test_a_savepoint_moves_between_a_disk_and_elsewhere(place: str, tmp_path: Path) -> None:
    local = golden_on_disk("4.2/state-format2", tmp_path / "checkpoint")
    taken = savepoints.take(local, f"{place}/savepoints", deep=True)
    assert savepoints.verify(taken.uri, deep=True).problems == ()
    back = savepoints.restore(taken.uri, tmp_path / "back")
    assert contents(open_storage(back.checkpoint)) == contents(open_storage(str(local)))


def test_state_elsewhere_gets_other_partitions(place: str) -> None:
    source = made(place, "4.2/aggregate-memory")
    before = contents(open_storage(source))
    wider = savepoints.rescale(source, source.replace("checkpoint", "wider"), partitions=5, stopped=True)
    assert contents(open_storage(wider.checkpoint)) == before
    assert {each.partitions for each in checkpoints.read(wider.checkpoint).operators} == {5}


@pytest.mark.parametrize("name", KINDS)
def test_state_elsewhere_is_moved_in_tasks(place: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = made(place, name)
    before = contents(open_storage(source))
    with as_executors(monkeypatch) as tasks:
        wider = savepoints.rescale(
            source, source.replace("checkpoint", "wider"), partitions=5, stopped=True, master="its"
        )
    assert tasks.notes == ["reading state", "writing state", "reading state"]
    assert contents(open_storage(wider.checkpoint)) == before
    assert checkpoints.verify(wider.checkpoint).problems == ()
    assert [path for path in files(f"{place}/jobs") if path.startswith(".holdfast-")] == []


def test_damage_elsewhere_is_named_and_nothing_is_made(place: str) -> None:
    source = made(place, "4.2/aggregate-rocksdb")
    catalog = f"{place}/savepoints"
    taken = savepoints.take(source, catalog)
    path, data = max(
        ((path, data) for path, data in files(catalog).items() if path.startswith("objects/")),
        key=lambda each: len(each[1]),
    )
    open_storage(catalog).write(path, data[:-1] + bytes([data[-1] ^ 1]), replace=True)
    assert savepoints.verify(taken.uri).problems
    target = f"{place}/restored"
    with pytest.raises(Corrupt):
        savepoints.restore(taken.uri, target)
    assert files(target) == {}


def test_removal_elsewhere_leaves_what_others_need(place: str) -> None:
    source = made(place, "4.2/aggregate-rocksdb")
    catalog = f"{place}/savepoints"
    newest = checkpoints.read(source).batch_id
    assert newest is not None
    first = savepoints.take(source, catalog, batch=newest - 1)
    second = savepoints.take(source, catalog)
    savepoints.delete(first.uri)
    assert savepoints.verify(second.uri, deep=True).problems == ()
    savepoints.delete(second.uri)
    assert not [path for path in files(catalog) if path.startswith("objects/")]
    with pytest.raises(NotFound):
        savepoints.show(second.uri)


def test_the_command_reads_and_saves_what_is_elsewhere(place: str, holdfast: Holdfast) -> None:
    source = made(place, "4.2/aggregate-rocksdb")
    catalog = f"{place}/savepoints"

    def told(*arguments: str) -> dict[str, Any]:
        done = holdfast(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    taken = told("savepoint", "take", source, catalog)
    assert taken["batch_id"] == told("checkpoint", "show", source)["batch_id"]
    assert told("savepoint", "verify", taken["savepoint"])["ok"] is True
