"""Other partitions for the state of any query, and what a rescale refuses. Without Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from catalogs import Hands, catalog, file_query, target
from grid import WHOLE, one_in

from golden import GATHERED, NAMES, REPARTITIONED, golden, golden_files, golden_with_confs
from holdfast import layout
from holdfast.changes.partitions import RescaleReport, apply_rescale, planned_rescale
from holdfast.changes.rewriting import StateShape, rewrite
from holdfast.checkpoints.checkpoint import read
from holdfast.checkpoints.state.contents import contents
from holdfast.checkpoints.state.rows import state_chunks
from holdfast.checkpoints.verification.verifying import verify
from holdfast.errors import Conflict, Corrupt, Internal, Invalid, NotFound, Unsupported
from holdfast.savepoints.access import ChangeSource
from holdfast.storage.memory import MemoryStorage
from holdfast.storage.port import Storage
from holdfast.testing.failing_storage import FaultyStorage, Killed

HEAP = [name for name in NAMES if "memory" in name]
# Its rows have all expired.
EMPTY = "4.2/dedupe-changelog"
# State whose keys nobody here can place.
AVRO = {"stateStore.encodingFormat": "avro"}
ROCKS, ROCKS2 = "4.2/aggregate-changelog", "4.2/state-format2"


def no_spark(_: Path, __: int, ___: int) -> None:
    raise AssertionError("no Spark is needed for this")


def do(
    source: ChangeSource,
    into: Storage,
    partitions: int,
    folder: Path,
    spark: Callable[[Path, int, int], None] = no_spark,
) -> RescaleReport:
    plan = planned_rescale(source, into, partitions)
    return apply_rescale(source, into, plan, folder, spark)


@pytest.mark.parametrize("partitions", [1, 2, 3, 7] if WHOLE else [3])
@pytest.mark.parametrize("name", one_in(4, [name for name in NAMES if name != EMPTY]))
def test_rows_stay_as_they_are(name: str, partitions: int, tmp_path: Path) -> None:
    checkpoint, new = golden(name), target()
    before, files = contents(checkpoint), dict(checkpoint.files)
    made = do(ChangeSource(checkpoint), new, partitions, tmp_path)
    assert checkpoint.files == files
    assert contents(new) == before == made.states
    assert made.rows > 0
    found, old = read(new), read(checkpoint)
    assert old.batch_id is not None
    assert found.batch_id == made.batch_id == old.batch_id
    assert {operator.partitions for operator in found.operators} == {partitions}
    assert (found.query_id, found.watermark_ms, found.sources) == (
        old.query_id,
        old.watermark_ms,
        old.sources,
    )
    assert verify(new).problems == ()
    used = {partition for _, partition, rows in state_chunks(new) if rows}
    assert used <= set(range(partitions))
    assert len(used) > 1 or partitions == 1


def test_of_a_savepoint_too(tmp_path: Path) -> None:
    into = catalog()
    taken = Hands().take(golden(HEAP[0]), into)
    made = do(ChangeSource(into, taken.manifest.savepoint_id), target(), 5, tmp_path)
    assert made.plan.source == taken.uri
    assert made.plan.original == golden(HEAP[0]).uri
    assert made.batch_id == taken.manifest.batch_id


def test_a_key_in_a_strange_place_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """Partitions that somebody has exchanged: the hash of their keys tells."""
    files = {}
    for path, data in golden_files("4.2/aggregate-memory").items():
        for one, other in (("0", "1"), ("1", "0")):
            if path.startswith(f"state/0/{one}/") and "_metadata" not in path:
                files[f"state/0/{other}/{path.removeprefix(f'state/0/{one}/')}"] = data
                break
        else:
            files[path] = data
    new = target()
    with pytest.raises(Corrupt, match="damaged, so nothing was rescaled") as error:
        do(ChangeSource(MemoryStorage(files)), new, 3, tmp_path)
    assert "belong to partition" in str(error.value.found)
    assert not new.files


def test_gathered_state_stays_with_the_one_task_that_has_it(tmp_path: Path) -> None:
    for name in GATHERED:
        new = target()
        made = do(ChangeSource(golden(name)), new, 4, tmp_path / name)
        assert contents(new) == contents(golden(name)) == made.states
        assert [operator.partitions for operator in read(new).operators] == [1]
    heap = MemoryStorage(golden_files(GATHERED[1]))
    before = contents(heap)
    rewrite(heap, StateShape(rocksdb=False, partitions=4, state_format=1), tmp_path / "w")
    assert contents(heap) == before
    assert verify(heap).problems == ()


def test_what_spark_has_lost_is_not_published(tmp_path: Path) -> None:
    """A repartitioning that gives the state of the batch before."""

    def lose(checkpoint: Path, _: int, __: int) -> None:
        newest = read(golden(ROCKS)).batch_id
        for log in ("commits", "offsets"):
            (checkpoint / log / str(newest)).unlink()

    new = target()
    with pytest.raises(Internal, match="the rows of a state have changed"):
        do(ChangeSource(golden_with_confs(ROCKS, **AVRO)), new, 3, tmp_path, lose)
    assert not new.files


def test_spark_is_told_the_format_of_the_state(tmp_path: Path) -> None:
    told = []

    def stop(checkpoint: Path, partitions: int, state_format: int) -> None:
        told.append((read_id(checkpoint), partitions, state_format))
        raise Unsupported("that is enough")

    for name in (ROCKS, ROCKS2):
        with pytest.raises(Unsupported, match="enough"):
            do(ChangeSource(golden_with_confs(name, **AVRO)), target(), 3, tmp_path / name, stop)
    assert told == [(read(golden(ROCKS)).query_id, 3, 1), (read(golden(ROCKS2)).query_id, 3, 2)]


def test_spark_does_only_what_is_not_known_here() -> None:
    assert planned_rescale(ChangeSource(golden_with_confs(ROCKS, **AVRO)), target(), 3).starts_spark
    assert not planned_rescale(ChangeSource(golden_with_confs(ROCKS, **AVRO)), target(), 2).starts_spark
    for name in (*NAMES, *GATHERED, REPARTITIONED):
        assert not planned_rescale(ChangeSource(golden(name)), target(), 7).starts_spark, name


def test_spark_does_nothing_where_it_has_noted_no_operators() -> None:
    """Its own repartitioning goes by its notes, which a Spark before 4.0 does not make."""
    name = "3.5/aggregate-rocksdb"
    with pytest.raises(Unsupported, match="for state in Avro encoding"):
        planned_rescale(ChangeSource(golden_with_confs(name, **AVRO)), target(), 3)


def read_id(checkpoint: Path) -> str:
    from holdfast.storage.local import LocalStorage

    return read(LocalStorage(checkpoint)).query_id


def test_killed_at_any_write_it_is_old_or_new_and_a_second_try_works(tmp_path: Path) -> None:
    source = golden("4.2/aggregate-memory")
    files = dict(source.files)
    whole = MemoryStorage(uri="memory://new")
    do(ChangeSource(source), whole, 3, tmp_path / "whole")
    at, done = 0, False
    while not done:
        at += 1 if WHOLE else 5  # an odd number: every other one is late
        new = MemoryStorage(uri="memory://new")
        try:
            do(
                ChangeSource(source),
                FaultyStorage(new, at, kill=True, late=at % 2 == 0),
                3,
                tmp_path / f"{at}",
            )
            done = True
        except Killed:
            pass
        assert source.files == files
        if layout.METADATA in new.files:
            assert contents(new) == contents(whole)
            assert verify(new).problems == ()
            continue
        do(ChangeSource(source), new, 3, tmp_path / f"{at} again")
        assert set(new.files) == set(whole.files)
        assert contents(new) == contents(whole)
    assert at > 15


def test_a_finished_one_is_not_made_again(tmp_path: Path) -> None:
    new = target()
    do(ChangeSource(golden(HEAP[0])), new, 3, tmp_path / "one")
    files = dict(new.files)
    with pytest.raises(Conflict, match="the directory of the new checkpoint is not empty"):
        do(ChangeSource(golden(HEAP[0])), new, 3, tmp_path / "two")
    assert new.files == files


def test_a_batch_under_way_is_waited_for() -> None:
    checkpoint = golden(HEAP[0])
    newest = read(checkpoint).batch_id
    assert newest is not None
    checkpoint.write(f"offsets/{newest + 1}", checkpoint.read(f"offsets/{newest}"))
    with pytest.raises(Conflict, match="the checkpoint has an uncommitted batch") as error:
        planned_rescale(ChangeSource(checkpoint), target(), 3)
    assert error.value.found == f"batch {newest + 1}"


def test_a_query_without_state_has_nothing_to_move() -> None:
    with pytest.raises(Invalid, match="no state"):
        planned_rescale(ChangeSource(MemoryStorage(file_query(3))), target(), 3)


def test_a_target_with_something_in_it_is_refused() -> None:
    with pytest.raises(Conflict, match="the directory of the new checkpoint is not empty"):
        planned_rescale(ChangeSource(golden(HEAP[0])), MemoryStorage({"mine": b"x"}), 3)


def test_no_checkpoint_is_said() -> None:
    with pytest.raises(NotFound, match="no checkpoint"):
        planned_rescale(ChangeSource(target("empty")), target(), 3)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b"HDFSBackedStateStoreProvider", b"CassandraStateStoreProvider", "unknown state store provider"),
        (
            b'useStrictDistribution":"true"',
            b'useStrictDistribution":"false"',
            "cannot be computed with the settings",
        ),
    ],
)
def test_what_is_not_known_here_is_refused(old: bytes, new: bytes, said: str) -> None:
    files = golden_files("4.2/aggregate-memory")
    edited = {
        path: data.replace(old, new) if path.startswith("offsets/") else data
        for path, data in files.items()
        if not path.startswith("offsets/.")
    }
    assert edited != {path: data for path, data in files.items() if not path.startswith("offsets/.")}
    with pytest.raises(Unsupported, match=said):
        planned_rescale(ChangeSource(MemoryStorage(edited)), target(), 3)
