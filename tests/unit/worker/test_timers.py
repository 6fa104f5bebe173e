from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from holdfast.errors import Invalid
from holdfast.worker.arrays import placed
from holdfast.worker.declarations.handler_arguments import Timer
from holdfast.worker.interface import Moment
from holdfast.worker.runtime.timers import (
    TimerCells,
    decode,
    due_in_order,
    earliest,
    encode,
    encode_all,
    letter_of,
    ms_of,
    only,
    timer_of,
)

UTC = dt.timezone.utc


class Stored:
    """The columns of three keys: one timer, two timers, none."""

    size = 3
    keys = pa.table({"k": [0, 1, 2]})

    def stored(self, column: str) -> pa.Array:
        cells: dict[str, pa.Array] = {
            "timers": pa.array(["e100", "e300 far|p50 soon", None]),
            "due:event": pa.array([100, 300, None], pa.int64()),
            "due:processing": pa.array([None, 50, None], pa.int64()),
        }
        return cells[column]

    def elements(self, state: str) -> Any:
        raise AssertionError(state)


@pytest.mark.parametrize(
    ("timers", "text"),
    [
        ({}, None),
        ({"e": 1_700_000_000_000}, "e1700000000000"),
        ({"pnudge": 5}, "p5 nudge"),
        ({"e": -3}, "e-3"),
        ({"pb": 2, "e": 1}, "e1|p2 b"),
        ({"ea b|c\\d": 1}, "e1 a\\sb\\pc\\\\d"),
    ],
)
def test_timers_are_written_as_text_and_read_back(timers: dict[str, int], text: str | None) -> None:
    assert encode(timers) == text
    assert decode(text) == timers


@pytest.mark.parametrize("name", ["\\s", "\\\\p", " ", "|", "\\ s| ", "é", "a.b*", "line\nbreak", "$"])
def test_any_name_survives(name: str) -> None:
    timers = {f"e{name}": 7, f"p{name}": 8, "e": 9}
    assert decode(encode(timers)) == timers
    text = encode({f"e{name}": 7})
    assert encode_all(f"e{name}", pa.array([7])).to_pylist() == [text]
    assert only(pa.array([text]), f"e{name}").tolist() == [True]


def test_only_knows_keys_with_no_other_timer() -> None:
    texts = pa.array([None, "e5", "p5", "e5 a", "e5|p6", "e-5"])
    assert only(texts, "e").tolist() == [True, True, False, False, False, True]
    assert only(texts, "ea").tolist() == [True, False, False, True, False, False]
    assert only(pa.nulls(2, pa.string()), "e").tolist() == [True, True]


def test_earliest_is_by_clock() -> None:
    assert earliest({}) == (None, None)
    assert earliest({"p": 4}) == (None, 4)
    assert earliest({"ea": 9, "eb": 3, "pa": 5, "pb": 6}) == (3, 5)


def test_due_timers_fire_by_time_then_event_first_then_name() -> None:
    timers = {"pz": 5, "eb": 5, "ea": 5, "e": 7, "p": 1, "elate": 11, "plate": 21}
    assert due_in_order(timers, event_limit=10, processing_limit=20) == [
        (1, "p"),
        (5, "ea"),
        (5, "eb"),
        (5, "pz"),
        (7, "e"),
    ]


def test_a_timer_tells_its_time_in_utc() -> None:
    at = dt.datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    assert timer_of("pnudge", 1_500) == Timer("nudge", at, 1_500, "processing")
    assert timer_of("e", 1_500) == Timer("", at, 1_500, "event")


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (1_500, 1_500),
        (np.int64(7), 7),
        (dt.datetime(1970, 1, 1, 0, 0, 1, 999, tzinfo=UTC), 1_000),
        (dt.datetime(1970, 1, 1, 0, 0, 1), 1_000),
        (dt.datetime(1970, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2))), 0),
        (dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), -1),
    ],
)
def test_when_a_timer_is_due_can_be_said_in_several_ways(at: Any, expected: int) -> None:
    assert ms_of(at) == expected


@pytest.mark.parametrize("at", [True, 1.5, "noon", None, dt.date(2020, 1, 1), 2**62, -(2**62)])
def test_what_is_no_time_is_refused(at: Any) -> None:
    with pytest.raises(Invalid, match="the time of a timer or clock is not valid"):
        ms_of(at)


def test_clocks_have_two_names() -> None:
    assert (letter_of("event"), letter_of("processing")) == ("e", "p")
    with pytest.raises(Invalid, match="unknown clock"):
        letter_of("wall")


@pytest.mark.parametrize(
    ("watermark", "now", "due"),
    [
        (99, 49, None),
        (100, 49, [True, False, False]),
        (99, 50, [False, True, False]),
        (None, 50, [False, True, False]),
        (300, 0, [True, True, False]),
    ],
)
def test_due_keys_are_found_by_both_clocks(watermark: int | None, now: int, due: list[bool] | None) -> None:
    found = TimerCells(Stored(), Moment(now, watermark, 0)).due()
    assert (None if found is None else found.tolist()) == due


def test_only_keys_that_were_looked_at_are_written() -> None:
    cells = TimerCells(Stored(), Moment(0, None, 0))
    assert cells.columns() == {}
    timers = cells.of(1)
    assert timers == {"efar": 300, "psoon": 50}
    del timers["psoon"]
    timers["e"] = 200
    cells.keep_one("e", 2, 400)
    found = {name: column.to_pylist() for name, column in cells.columns().items()}
    assert found == {
        "timers": ["e100", "e200|e300 far", "e400"],
        "due:event": [100, 200, 400],
        "due:processing": [None, None, None],
    }


def test_cells_are_replaced_in_place() -> None:
    column = pa.array([1, 2, 3])
    assert placed(column, np.array([2, 0]), pa.array([30, None])).to_pylist() == [None, 2, 30]
    assert placed(column, np.array([0, 1, 2]), pa.array([7, 8, 9])).to_pylist() == [7, 8, 9]
    assert placed(column, np.array([], np.int64), pa.array([], pa.int64())).to_pylist() == [1, 2, 3]
