"""Events that are packed by group, and combined before, are the same events in the same order."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from holdfast.errors import Invalid
from holdfast.worker.packets import HASH, WAKE, Combiner, InputStream, Packer, Unpacker, Waker
from holdfast.worker.passes import Packet, packets_in
from holdfast.worker.state.group_numbers import EVEN
from holdfast.worker.state.layout import Layout, form_of, group_of

GROUPS = 5
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
SCHEMA = pa.schema(
    [
        ("who", pa.string()),
        ("n", pa.int64()),
        ("ts", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(10, 2)),
        ("tags", pa.list_(pa.string())),
        ("raw", pa.binary()),
        ("place", pa.struct([("city", pa.string()), ("zips", pa.map_(pa.string(), pa.int32()))])),
    ]
)


def row(n: int) -> dict[str, Any]:
    some: dict[str, Any] = {
        "who": f"w{n % 7}",
        "n": n,
        "ts": EPOCH + dt.timedelta(milliseconds=n),
        "price": Decimal(n) / 100,
        "tags": [str(n), None] if n % 2 else [],
        "raw": bytes([n % 256]),
        "place": {"city": "x" * (n % 5), "zips": [("z", n)]},
    }
    return {name: None if (n + at) % 5 == 0 else value for at, (name, value) in enumerate(some.items())}


def hashes(rows: Sequence[dict[str, Any]]) -> list[int]:
    """Any number will do that is the same for the same key; these reach all groups."""
    return [
        ((sum(map(ord, each["who"] or "")) * 0x9E3779B97F4A7C15) % (1 << 64)) - (1 << 63) for each in rows
    ]


def hashed(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    batch = pa.RecordBatch.from_pylist(list(rows), schema=SCHEMA)
    return pa.RecordBatch.from_arrays(
        [*batch.columns, pa.array(hashes(rows), pa.int64())],
        schema=SCHEMA.append(pa.field(HASH, pa.int64())),
    )


FORM = form_of((), pa.schema([("who", pa.string())]), timers=False)
LAYOUT = Layout("op", GROUPS, (), FORM, ("who",))


def packer(number: int) -> Packer:
    return Packer(InputStream("event", SCHEMA, ("who",)), number, LAYOUT)


def packets(batches: Iterator[pa.RecordBatch] | Sequence[pa.RecordBatch]) -> list[Packet]:
    return [packet for batch in batches for packet in packets_in(batch, EVEN)]


def test_packets_hold_every_event_in_its_group_and_order() -> None:
    rows = [row(n) for n in range(100)]
    packed = packets(packer(3)([hashed(rows[:40]), hashed([]), hashed(rows[40:])]))
    assert {each.stream for each in packed} == {3}
    assert len({each.group for each in packed}) == len(packed) > 1
    carried = pa.schema([*SCHEMA, (HASH, pa.int64())])
    found: list[dict[str, Any]] = []
    for each in packed:
        assert each.payload is not None
        events = pa.ipc.read_record_batch(each.payload, carried)
        unsigned = events.column(len(SCHEMA)).to_numpy().view(np.uint64)
        assert set(group_of(unsigned, GROUPS).tolist()) == {each.group}
        mine = events.drop_columns(HASH).to_pylist()
        assert [m["n"] for m in mine if m["n"]] == sorted(m["n"] for m in mine if m["n"])
        found += mine
    assert len(found) == len(rows)
    for each in pa.Table.from_pylist(rows, schema=SCHEMA).to_pylist():
        assert each in found


def test_no_events_make_no_packets_and_wide_types_are_brought_to_the_declared() -> None:
    assert packets(packer(0)([])) == []
    assert packets(packer(0)([hashed([])])) == []
    batch = hashed([row(1)])
    large = batch.set_column(0, pa.field("who", pa.large_string()), batch.column(0).cast(pa.large_string()))
    assert packets(packer(0)([large])) == packets(packer(0)([batch]))


def test_many_events_are_packed_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.worker.packets.PACK_BYTES", 1)
    packed = packets(packer(0)([hashed([row(n)]) for n in range(1, 4)]))
    assert [each.seq for each in packed] == [0, 1, 2]


def test_a_tick_wakes_every_group_once() -> None:
    ticks = pa.RecordBatch.from_pylist([{"value": 1}, {"value": 2}])
    woken = packets(Waker(LAYOUT)([ticks, ticks]))
    assert woken == [Packet(group, WAKE, WAKE, WAKE, None) for group in range(GROUPS)]
    assert packets(Waker(LAYOUT)([ticks.slice(0, 0)])) == []


class Doubled:
    def combine(self, events: pa.Table) -> pa.Table:
        return events.select(["n", "who"])


class Broken:
    def combine(self, events: pa.Table) -> Any:
        return events.to_pylist()


def test_what_combine_gives_has_the_declared_columns() -> None:
    declared = pa.schema([("who", pa.string()), ("n", pa.int64())])
    batches = [pa.RecordBatch.from_pylist([row(n)], schema=SCHEMA) for n in (1, 2)]
    (made,) = Combiner(Doubled(), declared)(batches)
    assert made.to_pylist() == [{"who": "w1", "n": 1}, {"who": "w2", "n": 2}]
    for wrong in (Combiner(Broken(), declared), Combiner(Doubled(), SCHEMA)):
        with pytest.raises(Invalid, match="returned the wrong columns"):
            list(wrong(batches))


def test_packed_results_are_rows_again() -> None:
    schema = pa.schema([("who", pa.string()), ("n", pa.int64())])
    rows = pa.RecordBatch.from_pydict({"who": ["ann", None], "n": [1, 2]}, schema)
    packed = pa.array([rows.serialize().to_pybytes(), b"", None], pa.binary())
    answers = [pa.RecordBatch.from_arrays([packed], ["payload"])]
    assert list(Unpacker(schema)(answers)) == [rows]
