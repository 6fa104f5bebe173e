"""A pass sorts out what is late, hands over the rest in order, and puts out late and failed events aside."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from holdfast.worker.declarations.state_descriptors import State, StateKind
from holdfast.worker.interface import Arrivals, FailedEvent, Moment, Outcome, Runner, Shared, Touched
from holdfast.worker.packets import HASH, SIDE_COLUMNS, InputStream, Lane, Packer
from holdfast.worker.passes import Packet, Pass, TaskOutput, late_events
from holdfast.worker.state.layout import Layout, form_of
from holdfast.worker.state.partition import Partition
from holdfast.worker.state.store import MemoryStore

GROUPS = 5
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
SCHEMA = pa.schema(
    [
        ("who", pa.string()),
        ("n", pa.int64()),
        ("ts", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(10, 2)),
        ("raw", pa.binary()),
        ("place", pa.struct([("city", pa.string()), ("zips", pa.map_(pa.string(), pa.int32()))])),
    ]
)


@pytest.mark.parametrize(
    ("watermark_ms", "expected"),
    [
        (0, [True, True, False, False, False]),
        (1, [True, True, True, True, False]),
        (-1, [True, False, False, False, False]),
        (2**53, [True, True, True, True, False]),
    ],
)
def test_what_the_watermark_has_reached_is_late(watermark_ms: int, expected: list[bool]) -> None:
    micros = pa.array([-1_000, 0, 1, 1_000, None], pa.int64())
    for times in (micros.cast(pa.timestamp("us", "UTC")), micros.cast(pa.timestamp("us"))):
        assert late_events(pa.chunked_array([times[:2], times[2:]]), watermark_ms).tolist() == expected


def test_the_farthest_times_are_compared_without_overflow() -> None:
    last = 253_402_300_799_999
    micros = pa.array([-(2**63), 2**63 - 1, last * 1_000, last * 1_000 + 1], pa.int64())
    times = pa.chunked_array([micros.cast(pa.timestamp("us", "UTC"))])
    assert late_events(times, last).tolist() == [True, False, True, False]


class Echo:
    """Puts out each event's number, and sets those aside that are below zero."""

    def __init__(self) -> None:
        self.calls = 0

    def share(self, rows: Shared) -> None:
        """Nothing is broadcast here."""

    def run(self, arrivals: Sequence[Arrivals], touched: Touched, moment: Moment) -> Outcome:
        self.calls += 1
        everything = [each for arrival in arrivals for each in arrival.events.to_pylist()]
        fine = [{"n": each["n"]} for each in everything if (each["n"] or 0) >= 0]
        failed = [FailedEvent("event", each, "below zero") for each in everything if (each["n"] or 0) < 0]
        names = touched.keys.column_names
        assert names == ["who"]
        return Outcome({}, {}, pa.Table.from_pylist(fine, schema=pa.schema([("n", pa.int64())])), failed)


STATE = State(StateKind.VALUE, pa.int64(), "total")
FORM = form_of([STATE], pa.schema([("who", pa.string())]), timers=False)


def passing(
    *,
    runner: Runner | None = None,
    side_outputs: bool = False,
    keep_late: bool = False,
    memory: int = 256 << 20,
) -> Pass:
    layout = Layout("op", GROUPS, (STATE,), FORM, ("who",), memory_bytes=memory)
    own = [pa.field("n", pa.int64())]
    sides = [pa.field(name, pa.string()) for name in SIDE_COLUMNS] if side_outputs else []
    lane = Lane(
        layout,
        (InputStream("event", SCHEMA, ("who",), "ts"), InputStream("plain", SCHEMA, ("who",))),
        pa.schema([*own, *sides]),
        keep_late=keep_late,
        side_outputs=side_outputs,
    )
    partition = Partition(layout, MemoryStore(), token=lambda: b"12345678")
    return Pass(lane, partition, runner or Echo())


def answered(
    running: Pass, found: Sequence[Packet], moment: Moment
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    answers: list[TaskOutput] = list(running.run(found, [], moment))
    rows = [row for each in answers if each.rows is not None for row in each.rows.to_pylist()]
    assert all(not each.counts for each in answers[:-1])
    return rows, answers[-1].counts


def of(stream: int, *numbers: int) -> list[Packet]:
    """Events of one key with these numbers, which are their times in milliseconds too."""
    rows = [
        {
            "who": "a",
            "n": each,
            "ts": EPOCH + dt.timedelta(milliseconds=abs(each)),
            "price": Decimal("0.01"),
            "raw": b"\x01",
            "place": {"city": "x", "zips": [("z", 1)]},
            HASH: 7 << 58,
        }
        for each in numbers
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA.append(pa.field(HASH, pa.int64())))
    packer = Packer(
        InputStream("event", SCHEMA, ("who",)), stream, Layout("op", GROUPS, (STATE,), FORM, ("who",))
    )
    return [Packet(*each.values()) for out in packer([batch]) for each in out.to_pylist()]


MOMENT = Moment(0, 10, 4)


def test_late_events_of_streams_with_a_time_are_counted_and_left_out() -> None:
    rows, counts = answered(passing(), [*of(1, 5, 6), *of(0, 5, 10, 11)], MOMENT)
    assert [each["n"] for each in rows] == [11, 5, 6]
    assert (counts["events"], counts["late"], counts["failed"], counts["keys"]) == (5, 2, 0, 1)


def test_late_events_are_handed_over_where_they_are_kept_or_nothing_is_known_of_the_time() -> None:
    for running, moment in (
        (passing(keep_late=True), MOMENT),
        (passing(), Moment(0, None, 4)),
        (passing(), Moment(0, 0, 4)),
    ):
        rows, counts = answered(running, of(0, 5, 11), moment)
        assert ([each["n"] for each in rows], counts["late"]) == ([5, 11], 0)


def test_late_and_failed_events_are_put_out_at_the_side() -> None:
    rows, counts = answered(passing(side_outputs=True), of(0, 5, 11, -12, 13), MOMENT)
    assert [each["n"] for each in rows] == [11, 13, None, None]
    failed, late = rows[2:]
    assert [each["side"] for each in rows] == [None, None, "failed", "late"]
    assert (failed["side_stream"], failed["side_error"]) == ("event", "below zero")
    assert (late["side_stream"], late["side_error"]) == ("event", None)
    assert json.loads(failed["side_event"])["n"] == -12
    assert json.loads(late["side_event"]) == {
        "who": "a",
        "n": 5,
        "ts": "1970-01-01 00:00:00.005000+00:00",
        "price": "0.01",
        "raw": "b'\\x01'",
        "place": {"city": "x", "zips": [["z", 1]]},
    }
    assert (counts["late"], counts["failed"]) == (1, 1)


def test_a_pass_with_late_events_alone_calls_nobody() -> None:
    runner = Echo()
    rows, counts = answered(passing(runner=runner), of(0, 5), MOMENT)
    assert (rows, counts["keys"], counts["late"]) == ([], 0, 1)
    assert runner.calls == 0


def test_much_output_comes_in_payloads_of_bounded_size() -> None:
    running = passing(memory=32 * 8 * 10)
    answers = list(running.run(of(0, *range(11, 111)), [], MOMENT))
    assert len(answers) == math.ceil(100 / 10) + 1


def test_packets_are_worked_off_in_the_order_of_their_tasks_and_numbers() -> None:
    found = [(part, seq, of(0, number)[0]) for part, seq, number in ((1, 0, 13), (0, 1, 12), (0, 0, 11))]
    made = [Packet(each.group, each.stream, part, seq, each.payload) for part, seq, each in found]
    rows, _ = answered(passing(), made, MOMENT)
    assert [each["n"] for each in rows] == [11, 12, 13]
