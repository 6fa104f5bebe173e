"""Aggregates as text: what they mean, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import Invalid
from holdfast.stream.measures import measures_of
from holdfast.worker.declarations.types import schema_of, type_text

SCHEMA = schema_of(
    "who string, n int, big long, half float, x double, price decimal(10,2), wide decimal(38,6), "
    "`odd(name)` long, on date, ts timestamp, ok boolean, tags array<string>"
)


def measured(text: str) -> Any:
    (measure,) = measures_of({"m": text}, SCHEMA, SCHEMA.names, where="here")
    return measure


@pytest.mark.parametrize(
    ("text", "function", "column", "output"),
    [
        ("count(*)", "count", None, "long"),
        ("COUNT( who )", "count", "who", "long"),
        ("sum(n)", "sum", "n", "long"),
        ("sum(half)", "sum", "half", "double"),
        ("sum(price)", "sum", "price", "decimal(20,2)"),
        ("sum(wide)", "sum", "wide", "decimal(38,6)"),
        ("avg(big)", "avg", "big", "double"),
        ("avg(price)", "avg", "price", "decimal(14,6)"),
        ("min(who)", "min", "who", "string"),
        ("max(on)", "max", "on", "date"),
        ("max(ts)", "max", "ts", "timestamp"),
        ("min(half)", "min", "half", "float"),
        ("sum(`odd(name)`)", "sum", "odd(name)", "long"),
        ("sum(odd(name))", "sum", "odd(name)", "long"),
    ],
)
def test_a_call_is_read_with_the_types_of_spark(
    text: str, function: str, column: str | None, output: str
) -> None:
    measure = measured(text)
    assert (measure.function, measure.column, type_text(measure.output)) == (function, column, output)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("median(n)", "invalid aggregate"),
        ("n", "invalid aggregate"),
        ("", "invalid aggregate"),
        (3, "invalid aggregate"),
        ("sum(*)", "is allowed only in"),
        ("sum(nothing)", "no column `nothing`"),
        ("sum(n + 1)", r"no column `n \+ 1`"),
        ("sum(who)", "has the wrong type"),
        ("avg(ts)", "has the wrong type"),
        ("max(ok)", "has the wrong type"),
        ("min(tags)", "has the wrong type"),
    ],
)
def test_what_is_no_aggregate_is_refused(text: Any, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        measured(text)


def test_names_and_emptiness_are_checked() -> None:
    nothings: tuple[Any, ...] = ({}, None, ["sum(n)"])
    for given in nothings:
        with pytest.raises(Invalid, match="no aggregate given"):
            measures_of(given, SCHEMA, (), where="here")
    with pytest.raises(Invalid, match="the same name as another column") as caught:
        measures_of({"who": "sum(n)"}, SCHEMA, SCHEMA.names, where="here")
    assert caught.value.found == "who"
