from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import pytest

from holdfast.errors import Corrupt, NotFound
from holdfast.formats.state_sizes import PartitionSize, is_checkpoint, state_sizes

JOIN = {"operatorInfo": {"operatorId": 0, "operatorName": "symmetricHashJoin"}, "stateStoreInfo": []}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """One with batches 0 to 4 committed, and the offsets of another that runs."""
    place = tmp_path / "visits"
    for folder, numbers in (("commits", range(5)), ("offsets", range(6))):
        (place / folder).mkdir(parents=True)
        for number in numbers:
            (place / folder / str(number)).write_text("v1\n{}")
    return place


def metadata(checkpoint: Path, operator: int, fields: object, file: str = "metadata") -> None:
    path = checkpoint / "state" / str(operator) / "_metadata" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"v1\n{json.dumps(fields)}\n")


def put(folder: Path, name: str, size: int) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"x" * size)
    return size


def snapshot(folder: Path, name: str, rows: int, *ssts: int) -> int:
    """A snapshot with files of these sizes; its own size and theirs."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [{"localFileName": "1.sst", "dfsSstFileName": "1-x.sst", "sizeBytes": size} for size in ssts]
    with zipfile.ZipFile(folder / name, "w") as archive:
        archive.writestr("metadata", "v1\n" + json.dumps({"sstFiles": files, "numKeys": rows}))
    return (folder / name).stat().st_size + sum(ssts)


def test_a_store_is_its_newest_snapshot_and_the_changes_since(checkpoint: Path) -> None:
    metadata(checkpoint, 0, JOIN)
    first = checkpoint / "state" / "0" / "0" / "left"
    snapshot(first, "2_old.zip", 1, 50_000)
    put(first, "2_old.changelog", 7_000)
    base = snapshot(first, "3_aa.zip", 40, 1_000, 200)
    put(first, "3_aa.changelog", 9_000)
    changes = put(first, "4_bb.changelog", 30) + put(first, "5_cc.changelog", 5)
    # The batch that runs, checksums and files without a version do not count.
    put(first, "6_dd.changelog", 80_000)
    put(first, ".5_cc.changelog.crc", 12)
    put(first / "_metadata", "schema", 99)
    put(first / "SSTs", "1-x.sst", 1_000)
    second = checkpoint / "state" / "0" / "1" / "left"
    only = put(second, "1_ee.changelog", 11) + put(second, "2_ff.changelog", 12)
    (store,) = state_sizes(checkpoint)
    assert (store.operator, store.operator_name, store.store) == (0, "symmetricHashJoin", "left")
    assert store.batch_id == 4
    assert store.partitions == (PartitionSize(0, base + changes, 40), PartitionSize(1, only, None))
    assert store.rows is None
    assert store.largest == (base + changes) / (base + changes + only)


def test_a_store_of_the_heap_has_deltas_and_no_rows(checkpoint: Path) -> None:
    metadata(checkpoint, 0, JOIN)
    for partition, sizes in enumerate([(4, 10), (6, 20)]):
        folder = checkpoint / "state" / "0" / str(partition)
        put(folder, "1.delta", 1_000)
        put(folder, "4.snapshot", sizes[0])
        put(folder, "4.delta", 1_000)
        put(folder, "5.delta", sizes[1])
    (store,) = state_sizes(checkpoint)
    assert store.store == "default"
    assert store.partitions == (PartitionSize(0, 14, None), PartitionSize(1, 26, None))
    assert store.largest == 26 / 40


def test_partitions_and_operators_come_in_the_order_of_their_numbers(checkpoint: Path) -> None:
    for operator in (0, 2, 10):
        metadata(checkpoint, operator, {"operatorInfo": {"operatorName": f"op{operator}"}}, "v2/0")
        metadata(checkpoint, operator, {"operatorInfo": {"operatorName": f"new{operator}"}}, "v2/3")
        for partition in (0, 9, 10):
            put(checkpoint / "state" / str(operator) / str(partition), "1.delta", 5)
    stores = state_sizes(checkpoint)
    assert [store.operator_name for store in stores] == ["new0", "new2", "new10"]
    assert [each.partition for each in stores[0].partitions] == [0, 9, 10]


def test_of_two_files_of_one_version_the_newer_counts(checkpoint: Path) -> None:
    metadata(checkpoint, 0, JOIN)
    folder = checkpoint / "state" / "0" / "0"
    put(folder, "5_aa.changelog", 100)
    put(folder, "5_bb.changelog", 1)
    os.utime(folder / "5_bb.changelog", (1, 1))
    (store,) = state_sizes(checkpoint)
    assert store.bytes == 100


def test_a_query_without_state_has_none(checkpoint: Path) -> None:
    assert state_sizes(checkpoint) == []


def test_what_is_no_checkpoint_is_not_found(checkpoint: Path, tmp_path: Path) -> None:
    assert is_checkpoint(checkpoint)
    with pytest.raises(NotFound, match="no checkpoint of a query"):
        state_sizes(tmp_path / "nowhere")
    with pytest.raises(NotFound) as caught:
        state_sizes(checkpoint.parent)
    assert caught.value.hint is not None
    assert str(checkpoint) in caught.value.hint
    for each in (checkpoint / "commits").iterdir():
        each.unlink()
    with pytest.raises(NotFound, match="no batch is committed"):
        state_sizes(checkpoint)


def test_a_damaged_snapshot_is_named(checkpoint: Path) -> None:
    metadata(checkpoint, 0, JOIN)
    put(checkpoint / "state" / "0" / "0", "5_aa.zip", 40)
    with pytest.raises(Corrupt) as caught:
        state_sizes(checkpoint)
    assert caught.value.where is not None
    assert caught.value.where.endswith("5_aa.zip")
    (checkpoint / "state" / "0" / "_metadata" / "metadata").write_text("v1\n{}")
    with pytest.raises(Corrupt, match="metadata of a stateful operator"):
        state_sizes(checkpoint)
