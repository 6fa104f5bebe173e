"""Savepoints on a real S3 gateway: taken, proved, restored, forked, rescaled and removed there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import Holdfast
from s3_gateway import Gateway, filesystem

from golden import golden_files, golden_on_disk, without_checksums
from holdfast import checkpoints, savepoints
from holdfast.checkpoints.contents import contents
from holdfast.errors import Conflict, Corrupt, NotFound
from holdfast.storage import open_storage

pytestmark = pytest.mark.services

# With lineage and metadata that holds paths; with full data files; of the memory provider.
KINDS = ["4.2/state-format2", "4.2/aggregate-rocksdb", "4.2/aggregate-memory"]


def on_s3(gateway: Gateway, name: str) -> str:
    """A golden checkpoint in a bucket of its own, as Spark's file system leaves it there."""
    uri = f"{gateway.bucket()}/jobs/checkpoint"
    storage = open_storage(uri)
    for path, data in without_checksums(golden_files(name)).items():
        storage.write(path, data)
    return uri


def objects(uri: str) -> dict[str, bytes]:
    """What is below an address, as the gateway has it."""
    files = filesystem()
    files.invalidate_cache()
    root = uri.partition("://")[2]
    found = files.find(root)
    return {path.removeprefix(f"{root}/"): files.cat_file(path) for path in found}


@pytest.mark.parametrize("name", KINDS)
def test_a_checkpoint_in_a_bucket_is_saved_and_comes_back(s3_gateway: Gateway, name: str) -> None:
    source = on_s3(s3_gateway, name)
    bucket = source.removesuffix("/jobs/checkpoint")
    before = objects(source)
    assert checkpoints.read(source).batch_id is not None
    taken = savepoints.take(source, f"{bucket}/savepoints", deep=True)
    again = savepoints.take(source, f"{bucket}/savepoints")
    assert again.manifest.new_bytes == 0
    assert savepoints.verify(taken.uri, deep=True).problems == ()
    made = savepoints.restore(taken.uri, f"{bucket}/restored")
    forked = savepoints.fork(taken.uri, f"{bucket}/forked")
    held = contents(open_storage(source), taken.manifest.batch_id)
    for each in (made, forked):
        assert checkpoints.verify(each.checkpoint).problems == ()
        assert contents(open_storage(each.checkpoint)) == held
    kept, new = (json.loads(objects(each.checkpoint)["metadata"])["id"] for each in (made, forked))
    assert kept == taken.manifest.query_id != new
    assert objects(source) == before
    with pytest.raises(Conflict):
        savepoints.restore(taken.uri, f"{bucket}/restored")


def test_a_savepoint_moves_between_a_disk_and_a_bucket(s3_gateway: Gateway, tmp_path: Path) -> None:
    local = golden_on_disk("4.2/state-format2", tmp_path / "checkpoint")
    bucket = s3_gateway.bucket()
    taken = savepoints.take(local, f"{bucket}/savepoints", deep=True)
    assert savepoints.verify(taken.uri, deep=True).problems == ()
    back = savepoints.restore(taken.uri, tmp_path / "back")
    assert contents(open_storage(back.checkpoint)) == contents(open_storage(str(local)))


def test_state_in_a_bucket_gets_other_partitions(s3_gateway: Gateway) -> None:
    source = on_s3(s3_gateway, "4.2/aggregate-memory")
    before = contents(open_storage(source))
    made = savepoints.rescale(source, source.replace("checkpoint", "wider"), partitions=5)
    assert contents(open_storage(made.checkpoint)) == before
    assert {each.partitions for each in checkpoints.read(made.checkpoint).operators} == {5}


def test_damage_in_a_bucket_is_named_and_nothing_is_made(s3_gateway: Gateway) -> None:
    source = on_s3(s3_gateway, "4.2/aggregate-rocksdb")
    catalog = f"{source.removesuffix('/jobs/checkpoint')}/savepoints"
    taken = savepoints.take(source, catalog)
    path, data = max(
        ((path, data) for path, data in objects(catalog).items() if path.startswith("objects/")),
        key=lambda each: len(each[1]),
    )
    open_storage(catalog).write(path, data[:-1] + bytes([data[-1] ^ 1]), replace=True)
    assert savepoints.verify(taken.uri).problems
    target = f"{source.removesuffix('/jobs/checkpoint')}/restored"
    with pytest.raises(Corrupt):
        savepoints.restore(taken.uri, target)
    assert objects(target) == {}


def test_removal_in_a_bucket_leaves_what_others_need(s3_gateway: Gateway) -> None:
    source = on_s3(s3_gateway, "4.2/aggregate-rocksdb")
    catalog = f"{source.removesuffix('/jobs/checkpoint')}/savepoints"
    newest = checkpoints.read(source).batch_id
    assert newest is not None
    first = savepoints.take(source, catalog, batch=newest - 1)
    second = savepoints.take(source, catalog)
    savepoints.delete(first.uri)
    assert savepoints.verify(second.uri, deep=True).problems == ()
    savepoints.delete(second.uri)
    assert not [path for path in objects(catalog) if path.startswith("objects/")]
    with pytest.raises(NotFound):
        savepoints.show(second.uri)


def test_the_command_reads_and_saves_a_bucket(s3_gateway: Gateway, holdfast: Holdfast) -> None:
    source = on_s3(s3_gateway, "4.2/aggregate-rocksdb")
    catalog = f"{source.removesuffix('/jobs/checkpoint')}/savepoints"

    def told(*arguments: str) -> dict[str, Any]:
        done = holdfast(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    taken = told("savepoint", "take", source, catalog)
    assert taken["batch"] == told("checkpoint", "show", source)["batch"]
    assert told("savepoint", "verify", taken["savepoint"])["ok"] is True
