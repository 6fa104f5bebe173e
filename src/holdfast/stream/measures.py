"""The aggregates of keyed operators, parsed from text: `{"mean": "avg(amount)", "orders": "count(*)"}`.

The types of the results are those of Spark's own functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from holdfast.errors import Invalid
from holdfast.worker.declarations.types import type_text

FUNCTIONS = ("avg", "count", "max", "min", "sum")
_CALL = re.compile(rf"\s*({'|'.join(FUNCTIONS)})\s*\(\s*(.+?)\s*\)\s*", re.IGNORECASE | re.DOTALL)
_EXPECTED = f'{", ".join(FUNCTIONS)} of a column, as in "avg(amount)", or "count(*)"'
_MOST_DIGITS = 38


@dataclass(frozen=True, slots=True)
class Measure:
    """One aggregate: a function over a column.

    Attributes:
        name: The name of the result column.
        function: The function, one of `FUNCTIONS`.
        column: The input column, or None for `count(*)`.
        input: The type of the input column, or None for `count(*)`.
        output: The type of the result.
    """

    name: str
    function: str
    column: str | None
    input: pa.DataType | None
    output: pa.DataType

    @property
    def sum_type(self) -> pa.DataType:
        """Return the type of the sum from which `sum` and `avg` are computed."""
        if self.input is None or kinds.is_integer(self.input):
            return pa.int64()
        return _wider(self.input, 10, 0) if kinds.is_decimal(self.input) else pa.float64()


def measures_of(given: Any, schema: pa.Schema, taken: Iterable[str], *, where: str) -> tuple[Measure, ...]:
    """Parse aggregates, given by the name of their result column.

    Nulls are ignored, as in SQL: an aggregate of no values is null, a count of no values is 0.

    Args:
        given: An aggregate such as "sum(amount)" for each new column.
        schema: The columns of the events.
        taken: The names of the other result columns.
        where: The operator, for error messages.

    Raises:
        Invalid: There is no aggregate, a text is not an aggregate, a column is missing or has a type that the
            function does not support, or a name is in use.
    """
    if not isinstance(given, Mapping) or not given:
        raise Invalid(
            "no aggregate given",
            code="HF-E2337",
            where=f"{where}: agg",
            found=repr(given),
            expected='a name for each aggregate, as in {"mean": "avg(amount)"}',
            hint='give at least one: agg={"orders": "count(*)"}',
        )
    clashing = sorted(set(given) & set(taken))
    if clashing:
        raise Invalid(
            "an aggregate has the same name as another column of the result",
            code="HF-E2338",
            where=f"{where}: agg",
            found=", ".join(clashing),
            expected="unique names",
            hint="give the aggregate a different name",
        )
    return tuple(_measure(name, text, schema, f"{where}: agg[{name!r}]") for name, text in given.items())


def _measure(name: Any, text: Any, schema: pa.Schema, where: str) -> Measure:
    call = _CALL.fullmatch(text) if isinstance(text, str) else None
    if call is None or not isinstance(name, str) or not name:
        raise Invalid(
            "invalid aggregate",
            code="HF-E2339",
            where=where,
            found=repr(text),
            expected=_EXPECTED,
            hint='write the aggregate as "sum(amount)"; compute expressions first: .withColumn(…)',
        )
    function, column = call[1].lower(), _unquoted(call[2])
    if column == "*":
        if function != "count":
            raise Invalid(
                "`*` is allowed only in count(*)",
                code="HF-E2340",
                where=where,
                found=text,
                expected=_EXPECTED,
                hint=f'name a column: "{function}(amount)"',
            )
        return Measure(name, function, None, None, pa.int64())
    if column not in schema.names:
        raise Invalid(
            f"the frame has no column `{column}`",
            code="HF-E2341",
            where=where,
            found=", ".join(schema.names),
            hint="name an existing column, or compute the expression first: .withColumn(…)",
        )
    read = schema.field(column).type
    return Measure(name, function, column, read, _output(function, read, where))


def _output(function: str, read: pa.DataType, where: str) -> pa.DataType:
    number = kinds.is_integer(read) or kinds.is_floating(read) or kinds.is_decimal(read)
    if function == "count":
        return pa.int64()
    if function in ("min", "max") and (number or _has_order(read)):
        return read
    if function in ("sum", "avg") and number:
        if kinds.is_decimal(read):
            return _wider(read, 10, 0) if function == "sum" else _wider(read, 4, 4)
        return pa.int64() if function == "sum" and kinds.is_integer(read) else pa.float64()
    raise Invalid(
        f"the argument of `{function}` has the wrong type",
        code="HF-E2342",
        where=where,
        found=type_text(read),
        expected="a number" if function in ("sum", "avg") else "a number, text, a date or a time",
        hint="cast the column first: .withColumn(…)",
    )


def _has_order(read: pa.DataType) -> bool:
    return bool(kinds.is_string(read) or kinds.is_date(read) or kinds.is_timestamp(read))


def _wider(read: pa.DataType, digits: int, scale: int) -> pa.DataType:
    """Return a decimal type with more digits and a larger scale, within Spark's limits."""
    return pa.decimal128(min(read.precision + digits, _MOST_DIGITS), min(read.scale + scale, _MOST_DIGITS))


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if len(name) > 1 and name[0] == name[-1] == "`" else name
