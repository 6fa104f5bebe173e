"""How many partitions there are, where Spark's own note of it is wrong."""

from __future__ import annotations

import pytest

from golden import GATHERED, REPARTITIONED, golden, golden_files, without_checksums
from holdfast import layout
from holdfast.checkpoints.checkpoint import read
from holdfast.checkpoints.copy import cut
from holdfast.checkpoints.verification.verifying import verify
from holdfast.layout import StoreFile
from holdfast.storage.memory import MemoryStorage

PARTITIONS = {REPARTITIONED: {0, 1, 2}, GATHERED[0]: {0}, GATHERED[1]: {0}}
NOTED = b'"numPartitions":2'


def partitions_in(paths: list[str]) -> set[int]:
    places = (layout.parse(path) for path in paths)
    return {place.store.partition for place in places if isinstance(place, StoreFile)}


@pytest.mark.parametrize("name", PARTITIONS)
def test_every_partition_that_is_there_counts_and_no_other(name: str) -> None:
    assert NOTED in golden_files(name)["state/0/_metadata/metadata"]
    [operator] = read(golden(name)).operators
    assert {store.id.partition for store in operator.stores} == PARTITIONS[name]
    assert operator.partitions == len(PARTITIONS[name])
    assert all(store.missing is None for store in operator.stores)
    assert partitions_in([file.path for file in cut(golden(name)).files]) == PARTITIONS[name]
    assert verify(golden(name)).problems == ()


def test_before_it_was_repartitioned_there_were_two() -> None:
    newest = read(golden(REPARTITIONED)).batch_id
    assert newest is not None
    assert partitions_in([file.path for file in cut(golden(REPARTITIONED), newest - 1).files]) == {0, 1}


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_partition_that_is_lost_after_it_was_repartitioned_is_named(lost: int) -> None:
    files = golden_files(REPARTITIONED)
    rest = {path: data for path, data in files.items() if not path.startswith(f"state/0/{lost}/")}
    assert verify(MemoryStorage(rest)).problems


@pytest.mark.parametrize("edited", [b"1", b"2", b"4"])
def test_a_number_edited_after_it_was_repartitioned_is_seen(edited: bytes) -> None:
    files = without_checksums(golden_files(REPARTITIONED))
    path = f"offsets/{read(golden(REPARTITIONED)).batch_id}"
    told = b'"spark.sql.shuffle.partitions":"3"'
    assert told in files[path]
    files = {**files, path: files[path].replace(told, told.replace(b'"3"', b'"' + edited + b'"'))}
    assert verify(MemoryStorage(files)).problems


@pytest.mark.parametrize("name", GATHERED)
def test_the_state_that_a_single_task_has_lost_is_named(name: str) -> None:
    rest = {path: data for path, data in golden_files(name).items() if not path.startswith("state/0/0/1")}
    assert any(problem.file.startswith("state/0/0") for problem in verify(MemoryStorage(rest)).problems)
