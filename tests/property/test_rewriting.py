"""Real checkpoints written anew in every other shape. Spark goes on from such in tests/spark."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
from state_rows import state_rows

from golden import GATHERED, NAMES, REPARTITIONED, golden, golden_files
from holdfast.changes.rewriting import StateShape, rewrite, sweeps
from holdfast.checkpoints.checkpoint import read, state_format
from holdfast.checkpoints.state.contents import contents
from holdfast.checkpoints.verification.verifying import verify
from holdfast.errors import Unsupported
from holdfast.formats.files.snapshot import METADATA, parse_snapshot
from holdfast.formats.logs.batch_logs import PROVIDER
from holdfast.formats.rows.row_hashes import partition_of
from holdfast.storage.memory import MemoryStorage

EVERY = [*NAMES, *GATHERED, REPARTITIONED]
FAMILIES = ("state", "keyed", "spread")
ON_HEAP = [name for name in EVERY if not name.partition("/")[2].startswith(FAMILIES)]


def rewritten(checkpoint: MemoryStorage, shape: StateShape, folder: Path) -> MemoryStorage:
    new = MemoryStorage(dict(checkpoint.files), uri=checkpoint.uri)
    rewrite(new, shape, folder)
    return new


@pytest.mark.parametrize(("partitions", "state"), [(2, 1), (5, 2)])
@pytest.mark.parametrize("name", EVERY)
def test_rocksdb_holds_the_same_rows(name: str, partitions: int, state: int, tmp_path: Path) -> None:
    old = golden(name)
    shape = StateShape(rocksdb=True, partitions=partitions, state_format=state)
    new = rewritten(old, shape, tmp_path / "w")
    assert contents(new) == contents(old)
    assert state_format(new) == state
    found = read(new)
    assert found.confs[PROVIDER].endswith("RocksDBStateStoreProvider")
    assert found.batch_id == (read(old).batch_id or 0) + 1
    assert {each.partitions for each in found.operators if not each.gathered} <= {partitions}
    assert verify(new).problems == ()
    for path, data in old.files.items():
        assert new.files.get(path) == data or "/_metadata/" in path, path


def snapshot_versions(checkpoint: MemoryStorage, *, but: frozenset[str] = frozenset()) -> set[int]:
    paths = {path for path in checkpoint.files if path.endswith(".zip")} - but
    return {parse_snapshot(checkpoint.files[path], path).version for path in paths}


def test_snapshots_have_the_version_of_those_before(tmp_path: Path) -> None:
    """Spark 4.0 writes one of its own under state format 2, and starts with no other."""
    old = MemoryStorage(
        {
            path: of_version_2(data) if path.endswith(".zip") else data
            for path, data in golden_files("4.0/aggregate-format2").items()
            if not path.endswith(".zip.crc")
        }
    )
    assert snapshot_versions(old) == {2}
    before = frozenset(old.files)
    new = rewritten(old, StateShape(rocksdb=True, partitions=3, state_format=2), tmp_path / "w")
    assert contents(new) == contents(old)
    assert snapshot_versions(new, but=before) == {2}
    back = rewritten(new, StateShape(rocksdb=True, partitions=3, state_format=1), tmp_path / "v")
    assert snapshot_versions(back, but=frozenset(new.files)) == {1}


@pytest.mark.parametrize(("spark", "version"), [("4.0", 2), ("4.1", 1), ("4.2", 1)])
def test_the_first_snapshot_has_the_version_that_its_spark_reads(
    spark: str, version: int, tmp_path: Path
) -> None:
    """A young query of state format 2 has changelogs alone."""
    files = golden_files(f"{spark}/aggregate-format2")
    young = MemoryStorage({path: data for path, data in files.items() if ".zip" not in path})
    assert contents(young) == contents(golden(f"{spark}/aggregate-format2"))
    new = rewritten(young, StateShape(rocksdb=True, partitions=3, state_format=2), tmp_path / "w")
    assert contents(new) == contents(young)
    assert snapshot_versions(new) == {version}


def of_version_2(snapshot: bytes) -> bytes:
    changed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(snapshot)) as given, zipfile.ZipFile(changed, "w") as archive:
        for entry in given.namelist():
            data = given.read(entry)
            archive.writestr(entry, data.replace(b"v1", b"v2", 1) if entry == METADATA else data)
    return changed.getvalue()


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("name", ON_HEAP)
def test_the_heap_holds_the_same_rows(name: str, partitions: int, tmp_path: Path) -> None:
    old = golden(name)
    shape = StateShape(rocksdb=False, partitions=partitions, state_format=1)
    new = rewritten(old, shape, tmp_path / "w")
    assert contents(new) == contents(old)
    assert verify(new).problems == ()
    back = rewritten(new, StateShape(rocksdb=True, partitions=2, state_format=2), tmp_path / "v")
    assert contents(back) == contents(old)


@pytest.mark.parametrize("name", [name for name in EVERY if name not in ON_HEAP])
def test_the_heap_has_no_column_families(name: str, tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="does not support column families"):
        rewritten(golden(name), StateShape(rocksdb=False, partitions=2, state_format=1), tmp_path / "w")


def test_keys_go_where_spark_looks_for_them(tmp_path: Path) -> None:
    new = rewritten(
        golden("4.2/session-rocksdb"), StateShape(rocksdb=True, partitions=7, state_format=1), tmp_path / "w"
    )
    fields = [{"name": "customer", "type": "string"}, {"name": "start", "type": "timestamp"}]
    rows = list(state_rows(new))
    assert rows
    for row in rows:
        assert row.partition == partition_of(row.key_row, fields, 1, 7, "")


@pytest.mark.parametrize(
    ("before", "after"), [(2, 2), (2, 200), (3, 200), (200, 3), (6, 9), (1, 70), (70, 1)]
)
def test_few_stores_are_open_at_once_and_every_key_is_written_once(before: int, after: int) -> None:
    groups = list(sweeps(before, after))
    assert sorted(to for _, targets in groups for to in targets) == list(range(after))
    assert max(len(targets) for _, targets in groups) <= 32
    for value in range(2 * before * after):
        assert [value % before in origins for origins, targets in groups if value % after in targets] == [
            True
        ]


def test_as_many_partitions_as_spark_has_by_default(tmp_path: Path) -> None:
    """Under the limit of open files that a shell has."""
    import resource

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    old = golden("4.2/aggregate-changelog")
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, limits[0]), limits[1]))
    try:
        new = rewritten(old, StateShape(rocksdb=True, partitions=200, state_format=1), tmp_path / "w")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert contents(new) == contents(old)


def test_checksums_are_those_that_spark_writes(tmp_path: Path) -> None:
    """To the heap and back: the same bytes for every row as Spark had stored."""
    from holdfast.checkpoints.state.rows import state_chunks

    for name in ("4.2/aggregate-changelog", "4.2/join-format2", "4.2/session-rocksdb"):
        old = golden(name)
        heap = rewritten(
            old, StateShape(rocksdb=False, partitions=2, state_format=1), tmp_path / f"{len(name)}h"
        )
        back = rewritten(
            heap, StateShape(rocksdb=True, partitions=2, state_format=1), tmp_path / f"{len(name)}b"
        )

        def stored(checkpoint: MemoryStorage) -> set[tuple[str, int, bytes, bytes]]:
            return {
                (state.name.store, partition, key, value)
                for state, partition, pairs in state_chunks(checkpoint)
                for key, value in pairs
            }

        assert stored(back) == stored(old)
