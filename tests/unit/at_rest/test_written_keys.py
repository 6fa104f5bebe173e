"""Keys as people write them, and the examples that errors show."""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Mapping
from typing import Any

import pytest

from holdfast.at_rest.state_reader import parse_key
from holdfast.errors import Invalid
from holdfast.formats.rows.spark_types import Atom, Struct

UTC = dt.timezone.utc
NINE = dt.datetime(2026, 3, 5, 9, tzinfo=UTC)
HOUR = dt.timedelta(hours=1)
WINDOW = Struct(("start", "end"), (Atom("timestamp"), Atom("timestamp")))
BY_DAY = Struct(("shop", "day"), (Atom("integer"), Atom("date")))
WINDOWED = Struct(("window", "customer"), (WINDOW, Atom("string")))


def key_at(start: dt.datetime, customer: str, length: dt.timedelta = HOUR) -> dict[str, Any]:
    return {"window": {"start": start, "end": start + length}, "customer": customer}


@pytest.mark.parametrize(
    "words",
    [
        ["2026-03-05 09:00,ann"],
        ["2026-03-05T09:00:00Z, ann"],
        ["2026-03-05 10:00+01:00", "ann"],
        ["window=2026-03-05 09:00", "customer=ann"],
        ['{"window": {"start": "2026-03-05T09:00", "end": "2026-03-05T10:00"}, "customer": "ann"}'],
    ],
)
def test_a_window_is_named_by_its_start(words: list[str]) -> None:
    assert parse_key(words, WINDOWED, "s", lambda: key_at(NINE + HOUR, "bob")) == key_at(NINE, "ann")


def test_a_window_is_as_long_as_those_of_the_state() -> None:
    quarter = dt.timedelta(minutes=15)
    parsed = parse_key(["2026-03-05 09:00,ann"], WINDOWED, "s", lambda: key_at(NINE, "bob", quarter))
    assert parsed == key_at(NINE, "ann", quarter)


def test_of_an_empty_state_nobody_knows_how_long_a_window_is() -> None:
    with pytest.raises(Invalid, match="invalid value for the key column 'window'") as refused:
        parse_key(["2026-03-05 09:00,ann"], WINDOWED, "s")
    assert refused.value.hint == 'write the key as {"window": …, "customer": …}'


@pytest.mark.parametrize(
    ("columns", "key", "text"),
    [
        (WINDOWED, key_at(NINE, "ann"), "2026-03-05 09:00,ann"),
        (WINDOWED, key_at(NINE + dt.timedelta(seconds=7), "ann"), "2026-03-05 09:00:07,ann"),
        (WINDOWED, key_at(NINE, 'O"Neil, ann'), '2026-03-05 09:00,"O""Neil, ann"'),
        (WINDOWED, key_at(NINE, " ann"), '2026-03-05 09:00," ann"'),
        (WINDOWED, key_at(NINE, ""), "2026-03-05 09:00,"),
        (Struct(("customer",), (Atom("string"),)), {"customer": "ann"}, "ann"),
        (Struct(("customer",), (Atom("string"),)), {"customer": "a,b"}, "a,b"),
        (Struct(("customer",), (Atom("string"),)), {"customer": "customer=x"}, '{"customer": "customer=x"}'),
        (Struct(("customer",), (Atom("string"),)), {"customer": None}, '{"customer": null}'),
        (BY_DAY, {"shop": -7, "day": dt.date(2026, 3, 5)}, "-7,2026-03-05"),
        (Struct(("open",), (Atom("boolean"),)), {"open": True}, '{"open": true}'),
        (Struct(("raw",), (Atom("binary"),)), {"raw": b"\x00\xff"}, '{"raw": "0x00ff"}'),
    ],
)  # fmt: skip
def test_the_example_in_an_error_is_a_key_of_the_state(
    columns: Struct, key: Mapping[str, Any], text: str
) -> None:
    with pytest.raises(Invalid) as refused:
        parse_key(["{"], columns, "s", lambda: key) if len(columns.names) > 1 else parse_key(
            [], columns, "s", lambda: key
        )
    assert refused.value.hint == f"give a key such as {shlex.quote(text)}"
    assert parse_key([text], columns, "s", lambda: key) == key


def test_json_that_is_broken_is_not_taken_for_text() -> None:
    columns = Struct(("customer",), (Atom("string"),))
    with pytest.raises(Invalid, match="not valid JSON"):
        parse_key(['{"customer": "ann"'], columns, "s")
    with pytest.raises(Invalid, match="unknown key columns: x"):
        parse_key(['{"customer": "ann", "x": 1}'], columns, "s")
    assert parse_key(["{ann}"], columns, "s") == {"customer": "{ann}"}


def test_the_first_key_is_read_once_and_only_where_it_is_needed() -> None:
    read = []

    def first() -> Mapping[str, Any]:
        read.append(1)
        return key_at(NINE, "bob")

    columns = Struct(("shop", "customer"), (Atom("integer"), Atom("string")))
    assert parse_key(["7,ann"], columns, "s", first) == {"shop": 7, "customer": "ann"}
    assert read == []
    with pytest.raises(Invalid):
        parse_key(["2026-03-05 09:00"], WINDOWED, "s", first)
    assert read == [1]
