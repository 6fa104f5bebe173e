"""A key group's record and the store in memory: what goes in comes out, what is damaged is said to be."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest

from holdfast.errors import Corrupt
from holdfast.formats.key_groups import NEVER, Meta
from holdfast.worker.declarations.state_descriptors import State, StateKind, Ttl
from holdfast.worker.state.layout import BlobSchema, decode, encode, fingerprint_of, form_from_json, form_of
from holdfast.worker.state.store import GroupBlobs, MemoryStore, Write

STATES = (
    State(StateKind.VALUE, pa.int64(), "total", ttl=Ttl(10, on_disable="drop_expired")),
    State(StateKind.LIST, pa.string(), "seen"),
    State(StateKind.MAP, pa.float64(), "prices", key_type=pa.string(), ttl=Ttl(7, clock="event")),
)
KEYS = pa.schema([pa.field("who", pa.string()), pa.field("day", pa.date32())])
FORM = form_of(STATES, KEYS, timers=True)
META = Meta(128, b"12345678", b"abcdefgh", 1 << 40, 12, 3, -5, NEVER)


def seen(values: list[str]) -> pa.RecordBatch:
    schema = FORM.tables["seen"]
    count = len(values)
    arrays = [
        pa.array(range(count), pa.uint64()),
        pa.array([0] * count, pa.int32()),
        pa.array([1] * count, pa.int64()),
        pa.array([False] * count),
        pa.array(values, pa.string()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def test_a_record_is_read_as_it_was_written() -> None:
    assert Meta.decode(META.encode()) == META
    assert len(META.encode()) == len(Meta(1, b"\0" * 8, b"\0" * 8).encode()) == 61
    assert Meta.decode(Meta(1, b"\0" * 8, b"\0" * 8).encode()).wake_event == NEVER


@pytest.mark.parametrize("size", [0, 1, 60, 62])
def test_a_record_of_another_length_is_corrupt(size: int) -> None:
    with pytest.raises(Corrupt, match="cannot be read"):
        Meta.decode((META.encode() * 2)[:size])


def test_a_record_of_a_later_kind_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="unknown metadata format") as caught:
        Meta.decode(b"HFK9" + META.encode()[4:])
    assert caught.value.found == "b'HFK9'"


def test_a_form_is_read_as_it_was_written() -> None:
    again = form_from_json(FORM.as_json())
    assert again == FORM
    assert again.states["total"] == {
        "kind": "value",
        "type": "int64",
        "ttl_ms": 10,
        "clock": "processing",
        "on_disable": "drop_expired",
    }


TIMED = State(StateKind.REDUCING, pa.int64(), "total", ttl=STATES[0].ttl)
PRICES = State(StateKind.MAP, pa.float32(), "prices", key_type=pa.string())


@pytest.mark.parametrize(
    "other",
    [
        form_of(STATES, KEYS, timers=False),
        form_of(STATES[:2], KEYS, timers=True),
        form_of((*STATES[:2], PRICES), KEYS, timers=True),
        form_of((State(StateKind.VALUE, pa.int64(), "total", ttl=Ttl(10)), *STATES[1:]), KEYS, timers=True),
        form_of((TIMED, *STATES[1:]), KEYS, timers=True),
        form_of(STATES, pa.schema([KEYS.field(0), pa.field("day", pa.int32())]), timers=True),
    ],
    ids=["no timers", "a state less", "another type", "another choice", "another kind", "another key"],
)
def test_whatever_differs_has_another_fingerprint(other: BlobSchema) -> None:
    assert other != FORM
    assert other.fingerprint != FORM.fingerprint


def test_a_blob_is_read_as_it_was_written() -> None:
    empty = pa.RecordBatch.from_pylist([], schema=FORM.tables[""])
    batches = {"seen": seen(["a", "", "ü" * 10_000]), "": empty}
    blob = encode(FORM, batches)
    assert fingerprint_of(blob) == FORM.fingerprint
    found = decode(FORM, blob)
    assert list(found) == ["seen", ""]
    assert found["seen"].equals(batches["seen"])
    assert found[""].num_rows == 0


def test_every_cut_of_a_blob_is_corrupt() -> None:
    blob = encode(FORM, {"seen": seen(["a", "b"])})
    for size in range(9, len(blob)):
        with pytest.raises(Corrupt):
            decode(FORM, blob[:size])


def test_a_blob_that_names_no_table_is_corrupt() -> None:
    blob = encode(FORM, {"seen": seen(["a"])})
    at = struct.calcsize("<8sB")
    with pytest.raises(Corrupt):
        decode(FORM, blob[:at] + b"\x7f" + blob[at + 1 :])


def test_a_blob_with_a_flipped_byte_is_corrupt_or_has_the_same_tables() -> None:
    """A blob carries no checksum, so a flipped value is a value. Nothing else than `Corrupt` is raised."""
    blob = encode(FORM, {"seen": seen(["a", "b", "c"])})
    chance = np.random.default_rng(1)
    refused = 0
    for at in range(8, len(blob)):
        damaged = bytearray(blob)
        damaged[at] ^= int(chance.integers(1, 256))
        try:
            tables = decode(FORM, bytes(damaged))
        except Corrupt:
            refused += 1
            continue
        for name, table in tables.items():
            assert table.schema.equals(FORM.tables[name])
    assert 0 < refused < len(blob) - 8


def write(group: int, token: bytes, before: Meta | None = None, **what: object) -> Write:
    return Write(group, Meta(8, token, FORM.fingerprint), before, **what)  # type: ignore[arg-type]


def test_the_store_appends_and_a_base_takes_the_place_of_the_log() -> None:
    store = MemoryStore()
    assert store.metas([3, 4]) == [None, None]
    assert store.load(3) == GroupBlobs(None, (), ())
    store.write([write(3, b"1" * 8, append=b"one", forms=b"{}"), write(4, b"2" * 8, append=b"x")])
    store.write([write(3, b"3" * 8, append=b"two")])
    assert store.load(3) == GroupBlobs(b"{}", (), (b"one", b"two"))
    before = store.snapshot()
    store.write([write(3, b"4" * 8, base=[b"all"])])
    assert store.load(3) == GroupBlobs(b"{}", (b"all",), ())
    store.write([write(3, b"5" * 8, append=b"three"), write(4, b"6" * 8, base=[])])
    assert store.load(3) == GroupBlobs(b"{}", (b"all",), (b"three",))
    assert store.load(4) == GroupBlobs(None, (), ())
    assert [meta.token for meta in store.metas([3, 4]) if meta] == [b"5" * 8, b"6" * 8]
    assert before.load(3).log == (b"one", b"two")


def test_the_store_wakes_groups_whose_timer_is_due() -> None:
    store = MemoryStore()
    times = {0: (NEVER, NEVER), 1: (10, NEVER), 2: (NEVER, 10), 3: (-5, 20)}
    for group, (by_event, by_clock) in times.items():
        meta = Meta(8, b"1" * 8, FORM.fingerprint, wake_event=by_event, wake_processing=by_clock)
        store.write([Write(group, meta, None)])
    assert store.waking(None, 9) == []
    assert store.waking(None, 10) == [2]
    assert store.waking(9, 0) == [3]
    assert store.waking(10, 20) == [1, 2, 3]
