"""Rows of real checkpoints, against what their queries must hold."""

from __future__ import annotations

import datetime as dt
import tempfile
from pathlib import Path
from typing import Any

import golden_model as model
import pytest
from lz4_streams import lz4_stream
from state_rows import StateRow, state_rows

from golden import GATHERED, NAMES, REPARTITIONED, golden, golden_files, golden_on_disk
from holdfast import layout
from holdfast.checkpoints.state.contents import contents
from holdfast.errors import Corrupt, NotFound, Unsupported
from holdfast.formats.files.records import RecordKind, StateRecord, render_records
from holdfast.layout import FileKind, StoreFile
from holdfast.storage.local import LocalStorage
from holdfast.storage.memory import MemoryStorage
from holdfast.storage.port import Storage

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


def of_kind(kind: str) -> list[str]:
    return [name for name in NAMES if name.partition("/")[2].startswith(f"{kind}-")]


def by_state(storage: Storage, batch_id: int | None = None) -> dict[str, list[StateRow]]:
    found: dict[str, list[StateRow]] = {}
    for row in state_rows(storage, batch_id):
        found.setdefault(row.state.label, []).append(row)
    return found


def pairs(rows: list[StateRow]) -> list[tuple[Any, Any]]:
    return [(row.key, row.value) for row in rows]


@pytest.mark.parametrize("name", of_kind("aggregate"))
@pytest.mark.parametrize("batch", [8, 10, None])
def test_aggregate(name: str, batch: int | None) -> None:
    (rows,) = by_state(golden(name), batch).values()
    found = {row.key["customer"]: (row.value["count"], row.value["sum"]) for row in rows}
    files = model.taken(golden_files(name))
    assert found == model.aggregate(files if batch is None else files[: batch + 1])
    assert len(rows) == len(found)
    assert {row.partition for row in rows} == {0, 1}


@pytest.mark.parametrize("name", of_kind("state"))
@pytest.mark.parametrize("batch", [5, 7, None])
def test_lists_and_values(name: str, batch: int | None) -> None:
    """The lists are appended to in each batch: in the snapshot, and in each changelog since."""
    found = by_state(golden(name), batch)
    files = model.taken(golden_files(name))[: None if batch is None else batch + 1]
    assert {row.key["customer"]: row.value["n"] for row in found["count"]} == {
        f"c{each}": len(files) for each in range(10)
    }
    lists = {row.key["customer"]: [each["amount"] for each in row.value] for row in found["amounts"]}
    assert {row.is_list for row in found["amounts"]} == {True}
    assert lists == model.amounts(files)
    assert {row.key["customer"]: row.value["count"] for row in found["$rowCounter_amounts"]} == {
        customer: len(each) for customer, each in lists.items()
    }
    assert {row.state.internal for row in found["$rowCounter_amounts"]} == {True}


@pytest.mark.parametrize("name", of_kind("windowed"))
def test_windows(name: str) -> None:
    (rows,) = by_state(golden(name)).values()
    found = {(key["window"]["start"], key["customer"]): value["count"] for key, value in pairs(rows)}
    assert found == model.windows()
    assert len(rows) == len(found)


@pytest.mark.parametrize("name", of_kind("session"))
def test_sessions(name: str) -> None:
    """Their keys are in two parts."""
    (rows,) = by_state(golden(name)).values()
    found = [(key["customer"], key["sessionStartTime"]) for key, _ in pairs(rows)]
    assert sorted(found) == sorted(model.sessions())
    for key, value in pairs(rows):
        assert value["session_window"]["start"] == key["sessionStartTime"]
        assert value["count"] == 1


@pytest.mark.parametrize("name", of_kind("join"))
def test_joins(name: str) -> None:
    found = by_state(golden(name))
    expected = sorted((each.customer, each.amount, each.ts) for each in model.joinable())
    for side, fields in (("left", ("customer", "amount", "ts")), ("right", ("who", "paid", "at"))):
        values = pairs(found[f"{side}-keyWithIndexToValue"])
        assert sorted(tuple(value[each] for each in fields) for _, value in values) == expected
        places: dict[str, set[int]] = {}
        for key, _ in values:
            places.setdefault(key["field0"], set()).add(key["index"])
        counts = {key["field0"]: value["value"] for key, value in pairs(found[f"{side}-keyToNumValues"])}
        assert places == {customer: set(range(count)) for customer, count in counts.items()}


@pytest.mark.parametrize("name", of_kind("dedupe"))
@pytest.mark.parametrize("batch", [9, 10, 11, 12])
def test_deduplicated(name: str, batch: int) -> None:
    """The last batch deletes what the watermark has passed: the records of deletes have checksums too."""
    rows = by_state(golden(name), batch).get("default", [])
    found = {
        key["customer"]: EPOCH + dt.timedelta(microseconds=value["expiresAtMicros"])
        for key, value in pairs(rows)
    }
    assert found == model.seen_within_watermark(model.taken(golden_files(name)), batch + 1)


@pytest.mark.parametrize("name", NAMES)
def test_contents_counts_what_is_there(name: str, tmp_path: Path) -> None:
    """From memory and from a disk, where data files are linked."""
    storage = golden(name)
    rows: dict[str, int] = {}
    for row in state_rows(storage):
        rows[row.state.label] = rows.get(row.state.label, 0) + 1
    found = contents(storage)
    assert {each.state.label: each.rows for each in found if each.rows} == rows
    assert contents(LocalStorage(golden_on_disk(name, tmp_path))) == found


def test_the_same_state_has_one_digest() -> None:
    """Providers, changelogs, checksums of files and versions of Spark have no part in it."""
    digests = {contents(golden(name))[0].digest for name in of_kind("aggregate")}
    assert len(digests) == 1
    other = contents(golden("4.2/aggregate-format2"), 10)[0]
    assert other.digest not in digests
    assert other.rows == 10


def test_repartitioned_state_has_the_same_digest() -> None:
    """Spark itself has brought it into three partitions."""
    rows = list(state_rows(golden(REPARTITIONED)))
    assert {row.partition for row in rows} <= {0, 1, 2}
    assert [each.digest for each in contents(golden(REPARTITIONED))] == [
        each.digest for each in contents(golden("4.2/aggregate-format2"))
    ]


def test_state_without_keys() -> None:
    """One task has it all, under a key that is nothing."""
    everything, limited = GATHERED
    [row] = state_rows(golden(everything))
    assert (row.key_row, row.key, row.value) == (b"", {}, {"count": len(model.all_events())})
    [row] = state_rows(golden(limited))
    assert list(row.value.values()) == [45]


def test_rows_of_one_operator() -> None:
    storage = golden("4.2/state-format2")
    rows = list(state_rows(storage, operator_id=0))
    assert len([row for row in rows if row.state.label == "count"]) == 10
    assert list(state_rows(storage, operator_id=1)) == []


@pytest.mark.parametrize("batch", [2, 99])
def test_a_batch_that_is_not_kept(batch: int) -> None:
    with pytest.raises(NotFound, match="not committed, or is no longer kept"):
        contents(golden("4.2/aggregate-format2"), batch)


def test_a_provider_that_is_not_known() -> None:
    files = {
        path: data.replace(b"HDFSBackedStateStoreProvider", b"OurOwnStateStoreProvider")
        for path, data in golden_files("4.2/aggregate-memory").items()
    }
    with pytest.raises(Unsupported, match="OurOwnStateStoreProvider"):
        contents(MemoryStorage(files))


def needed(name: str, kind: FileKind) -> str:
    """The newest file of a kind of partition 0: one that the newest batch needs."""
    places = [layout.parse(path) for path in golden_files(name)]
    found = [each for each in places if isinstance(each, StoreFile) and each.kind is kind]
    return max((each for each in found if each.store.partition == 0), key=lambda each: each.version).render()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("4.2/aggregate-memory", FileKind.DELTA),
        ("4.2/aggregate-format2", FileKind.CHANGELOG),
        ("4.2/aggregate-format2", FileKind.ZIP),
        ("4.2/aggregate-rocksdb", FileKind.ZIP),
    ],
)
def test_damage_names_the_file(name: str, kind: FileKind) -> None:
    path = needed(name, kind)
    files = dict(golden_files(name))
    files[path] = files[path][:-9]
    with pytest.raises(Corrupt) as raised:
        contents(MemoryStorage(files))
    assert path in str(raised.value)


@pytest.mark.parametrize("flip", [0.01, 0.5])
@pytest.mark.parametrize("on_disk", [True, False])
def test_a_damaged_data_file_is_named(flip: float, on_disk: bool, tmp_path: Path) -> None:
    """RocksDB's rows just end at a damaged block; that must not pass for the end of the state."""
    name = "4.2/aggregate-rocksdb"
    files = dict(golden_files(name))
    damaged = []
    for path, data in list(files.items()):
        if path.startswith("state/0/0/SSTs/") and path.endswith(".sst"):
            at = int(len(data) * flip)
            files[path] = data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
            damaged.append(path)
    storage: Storage = MemoryStorage(files)
    if on_disk:
        for path, data in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_bytes(data)
        storage = LocalStorage(tmp_path)
    with pytest.raises(Corrupt) as raised:
        contents(storage)
    assert any(path in str(raised.value) for path in damaged)


def test_a_data_file_that_is_gone() -> None:
    files = {
        path: data
        for path, data in golden_files("4.2/aggregate-rocksdb").items()
        if not path.startswith("state/0/1/SSTs/")
    }
    with pytest.raises(NotFound, match=r"state/0/1/SSTs/"):
        contents(MemoryStorage(files))


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by who stops in the middle."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rows = state_rows(golden("4.2/state-format2"))
    next(rows)
    assert list(tmp_path.iterdir())
    rows.close()  # type: ignore[attr-defined]
    assert not list(tmp_path.iterdir())


def test_families_that_no_snapshot_names() -> None:
    """Spark writes a snapshot when it makes a family; changelogs know only its number."""
    files = {
        path: data
        for path, data in golden_files("4.2/state-format2").items()
        if not path.endswith((".zip", ".zip.crc"))
    }
    with pytest.raises(Unsupported, match="the name of a column family is unknown"):
        contents(MemoryStorage(files))


def test_changelogs_alone() -> None:
    """A store without families needs no snapshot, as long as every changelog is there."""
    name = "4.2/aggregate-format2"
    files = {
        path: data for path, data in golden_files(name).items() if not path.endswith((".zip", ".zip.crc"))
    }
    (rows,) = by_state(MemoryStorage(files)).values()
    found = {row.key["customer"]: (row.value["count"], row.value["sum"]) for row in rows}
    assert found == model.aggregate()


@pytest.mark.parametrize("value", [b"ab", b""])
def test_a_row_that_is_damaged_names_its_state(value: bytes) -> None:
    """In a file that is whole."""
    files = dict(golden_files("4.2/aggregate-memory"))
    path = needed("4.2/aggregate-memory", FileKind.DELTA)
    files[path] = lz4_stream(render_records([StateRecord(RecordKind.PUT, b"\0" * 32, value)]))
    with pytest.raises(Corrupt, match=r"state/0, state default"):
        contents(MemoryStorage(files))
    with pytest.raises(Corrupt, match=r"state/0, state default"):
        [row.value for row in state_rows(MemoryStorage(files))]
