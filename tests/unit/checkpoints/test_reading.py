"""What show and history say of real checkpoints, against what their makers must have written.

Twelve files, one a batch: batches 0 to 11, and version 12 of each store. The newest event of the last file is
of 08:11:40, so a watermark of a minute stands at 08:10:40.
"""

from __future__ import annotations

import datetime as dt
from itertools import pairwise

import pytest

from golden import NAMES, golden, golden_files
from holdfast import layout
from holdfast.checkpoints.checkpoint import history, read
from holdfast.checkpoints.logs import Logs
from holdfast.errors import Corrupt, NotFound
from holdfast.layout import StoreFile, StoreId
from holdfast.storage.memory import MemoryStorage

WATERMARK = int(dt.datetime(2026, 3, 5, 8, 10, 40, tzinfo=dt.timezone.utc).timestamp() * 1000)
TIMED = ("windowed", "join", "dedupe", "session", "keyed", "spread")

OPERATORS = {
    "aggregate": ("stateStoreSave", ("default",)),
    "windowed": ("stateStoreSave", ("default",)),
    "dedupe": ("dedupeWithinWatermark", ("default",)),
    "session": ("sessionWindowStateStoreSaveExec", ("default",)),
    "state": ("transformWithStateInPandasExec", ("default",)),
    "keyed": ("transformWithStateInPySparkExec", ("default",)),
    "spread": ("transformWithStateInPySparkExec", ("default",)),
    "join": (
        "symmetricHashJoin",
        (
            "left-keyToNumValues",
            "left-keyWithIndexToValue",
            "right-keyToNumValues",
            "right-keyWithIndexToValue",
        ),
    ),
}
PROVIDERS = {"memory": "HDFSBackedStateStoreProvider"}


def parts(name: str) -> tuple[str, str]:
    kind, _, provider = name.partition("/")[2].partition("-")
    return kind, provider


@pytest.mark.parametrize("name", NAMES)
def test_show(name: str) -> None:
    kind, provider = parts(name)
    found = read(golden(name))
    # A query with a watermark runs once more without data, to put out what the watermark has closed.
    newest = 12 if kind in TIMED else 11
    assert found.batch_id == newest
    assert found.uncommitted is None
    assert found.offered[-1] == found.committed[-1] == newest
    assert found.watermark_ms == (WATERMARK if kind in TIMED else None)
    assert found.provider == PROVIDERS.get(provider, "RocksDBStateStoreProvider")
    assert [each.offset for each in found.sources] == ['{"logOffset":11}'] * (2 if kind == "join" else 1)
    (operator,) = found.operators
    assert (operator.name, operator.store_names) == OPERATORS[kind]
    assert operator.partitions == 2
    assert operator.format_version == (2 if provider == "format2" else 1)
    assert len(operator.stores) == 2 * len(operator.store_names)
    for store in operator.stores:
        assert store.version == newest + 1
        assert store.missing is None
    assert operator.variables == {"state": ("amounts", "count")}.get(kind, operator.variables)


@pytest.mark.parametrize("name", NAMES)
def test_sizes_are_those_of_the_files(name: str) -> None:
    files = golden_files(name)
    found = read(golden(name))
    for store in (store for operator in found.operators for store in operator.stores):
        paths = [file.render() for file in store.files]
        folder = store.id.folder
        alone = sum(len(files[path]) for path in paths)
        shared = store.size_bytes - alone
        data = [
            len(each)
            for path, each in files.items()
            if path.startswith(f"{folder}/SSTs/") and "/." not in path
        ]
        assert 0 <= shared <= sum(data)
        newest = [
            len(data)
            for path, data in files.items()
            if isinstance(place := layout.parse(path), StoreFile)
            and (place.store, place.version) == (store.id, store.version)
        ]
        assert store.new_bytes >= sum(newest)
        assert (store.new_bytes == sum(newest)) or any(path.endswith(".zip") for path in paths)
        # Versions follow each other from the base on.
        versions = [file.version for file in store.files]
        assert versions == list(range(versions[0], store.version + 1))
        assert all(not file.kind.whole for file in store.files[1:])


@pytest.mark.parametrize("name", NAMES)
def test_history(name: str) -> None:
    files = golden_files(name)
    shown = read(golden(name))
    batches = history(golden(name))
    assert tuple(batch.batch_id for batch in batches) == shown.committed
    assert batches[-1].new_bytes == shown.new_bytes
    for before, after in pairwise(batches):
        assert before.next_watermark_ms == after.watermark_ms
        assert before.planned_ms < after.planned_ms
    for batch in batches:
        # Files of its version are the least that a batch has added; data files of RocksDB come on top.
        least = [path for path in files if _version(path) == batch.batch_id + 1]
        assert batch.files >= len(least)
        expected = '{"logOffset":%d}' % min(batch.batch_id, 11)  # noqa: UP031 - braces
        assert set(batch.offsets.values()) == {expected}
    assert history(golden(name), last=3) == batches[-3:]


def _version(path: str) -> int | None:
    place = layout.parse(path)
    return place.version if isinstance(place, StoreFile) else None


def test_a_batch_that_is_under_way() -> None:
    name = "4.2/aggregate-format2"
    rest = {
        path: data
        for path, data in golden_files(name).items()
        if not path.startswith(("commits/11", "commits/.11"))
    }
    found = read(MemoryStorage(rest))
    assert (found.batch_id, found.uncommitted) == (10, 11)
    assert [(each.offset, each.planned) for each in found.sources] == [
        ('{"logOffset":10}', '{"logOffset":11}')
    ]
    assert {store.version for store in found.operators[0].stores} == {11}


def test_the_newest_committed_batch_has_lost_its_offsets() -> None:
    files = golden_files("4.2/aggregate-format2")
    assert read(MemoryStorage(files)).log_versions == (1, 2)
    rest = {path: data for path, data in files.items() if path not in ("offsets/11", "offsets/.11.crc")}
    found = read(MemoryStorage(rest))
    assert (found.batch_id, found.log_versions, found.planned_ms) == (11, None, None)
    # Batch 10 has the newest offsets now, but it is committed.
    assert (found.offered[-1], found.uncommitted, found.sources) == (10, None, ())
    assert found.provider == "RocksDBStateStoreProvider"


def test_the_id_of_a_store_is_that_of_its_operator_partition_and_number() -> None:
    """The commit has two stores in the first partition, one in the second, and no third partition."""
    commit = b'v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{"7":[["a","b"],["c"]]}}'
    logs = Logs(MemoryStorage({"commits/3": commit}))
    first, second, third = (StoreId(7, partition) for partition in range(3))
    assert [logs.unique_id(first, index, 4) for index in range(4)] == ["a", "b", None, None]
    assert [logs.unique_id(second, index, 4) for index in range(3)] == ["c", None, None]
    assert logs.unique_id(third, 0, 4) is None
    assert logs.unique_id(StoreId(8, 0), 0, 4) is None
    assert logs.unique_id(first, 0, 3) is None


def test_before_the_first_batch() -> None:
    only = {path: golden_files("4.2/aggregate-format2")[path] for path in ("metadata",)}
    found = read(MemoryStorage(only))
    assert (found.batch_id, found.uncommitted, found.operators, found.watermark_ms) == (None, None, (), None)
    assert history(MemoryStorage(only)) == ()


def test_there_is_no_checkpoint() -> None:
    for ask in (read, history):
        with pytest.raises(NotFound, match="no checkpoint in this directory"):
            ask(MemoryStorage())


def test_what_show_cannot_read_is_named() -> None:
    files = golden_files("4.2/aggregate-format2")
    for path in ("metadata", "offsets/11", "commits/11", "state/0/_metadata/metadata"):
        with pytest.raises(Corrupt) as error:
            read(MemoryStorage({**files, path: b"x"}))
        assert error.value.where is not None
        assert f"/{path}" in error.value.where
        assert "verify" in (error.value.hint or "")
    rest = {path: data for path, data in files.items() if path != "metadata"}
    with pytest.raises(Corrupt, match="query's id is missing"):
        read(MemoryStorage(rest))
