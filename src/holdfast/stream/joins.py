"""Joins of two streams within a time bound, and of a stream with a table.

Spark stores the rows of both sides until the watermark has passed the last possible match; an outer join then
returns the rows without a match. No Python code runs per row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Final, Literal

from holdfast.config.checks import one_of
from holdfast.config.units import Duration, parse_duration
from holdfast.errors import Invalid
from holdfast.stream.event_time import (
    key_columns,
    quoted,
    refuse_repeated,
    refuse_time_key,
    require_columns,
    require_time,
    require_watermark,
    spark_interval,
    type_of,
    with_watermark,
)
from holdfast.stream.late import check_side_outputs, late_side, with_late_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


Pairs = list[tuple[str, str]]


def check_key_types(left: DataFrame, right: DataFrame, keys: Sequence[str], *, where: str) -> None:
    """Raise an error for keys whose types differ, because a cast between the types may lose matches.

    Raises:
        Invalid: A key has different types on the two sides.
    """
    for key in keys:
        one, two = (type_of(side, key) for side in (left, right))
        if one != two:
            raise Invalid(
                f"key `{key}` has different types on the two sides",
                code="HF-E2304",
                where=where,
                found=f"{one} on the left, {two} on the right",
                expected="the same type",
                hint="cast the key of one side before the join",
            )


def result_names(
    left: Sequence[str],
    right: Sequence[str],
    keys: Sequence[str],
    prefixes: tuple[str, str] | None,
    *,
    where: str,
    hint: str,
) -> tuple[Pairs, Pairs]:
    """Return pairs of each non-key column and its name in the result, for the left and the right side.

    Args:
        left: The columns of the left side.
        right: The columns of the right side.
        keys: The key columns, with the same names on both sides.
        prefixes: The prefixes for names that both sides have, left and right.
        where: The operator, for error messages.
        hint: The hint about prefixes; `{name}` stands for the first name that both sides have.

    Raises:
        Invalid: Two columns of the result would have the same name.
    """
    sides = [[name for name in columns if name not in keys] for columns in (left, right)]
    clashing = [name for name in sides[0] if name in sides[1]]
    if clashing and prefixes is None:
        raise Invalid(
            "both sides have columns with the same name",
            code="HF-E2305",
            where=where,
            found=", ".join(clashing),
            expected="unique names",
            hint=hint.format(name=clashing[0]),
        )
    pairs = []
    for side, prefix in zip(sides, prefixes or ("", ""), strict=True):
        pairs.append([(name, prefix + name if name in clashing else name) for name in side])
    result = [*keys, *(name for side in pairs for _, name in side)]
    refuse_repeated(result, where=where, hint="choose different prefixes")
    return pairs[0], pairs[1]


def same_keys(keys: Iterable[str]) -> Column:
    """Return the condition that the keys of a row `l` and a row `r` are equal."""
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    return reduce(and_, (F.col(f"l.{quoted(key)}") == F.col(f"r.{quoted(key)}") for key in keys))


EnrichKind = Literal["left", "inner"]

_TABLE_JOINS: Final = {"left": "left_outer", "inner": "inner"}
_ENRICH: Final = "holdfast.enrich(…)"
_PREFIX: Final = 'rename {name}, or give prefix="table_", which renames it to table_{name}'
_COUNT: Final = "__holdfast_rows"
_SHOWN: Final = 3


def enrich(
    stream: DataFrame,
    table: DataFrame,
    *,
    by: str | Iterable[str],
    how: EnrichKind = "left",
    prefix: str | None = None,
    check: bool = False,
) -> DataFrame:
    """Add the columns of a table to the rows of a stream with the same key.

    Each batch reads the table again; no state is stored. Which version of a changing table a batch reads
    depends on how the table was opened; see the guide on operators. A watermark remains on its column.

    A row of the stream is returned once for each row of the table with its key. Give the table unique keys,
    or set `check=True`, which counts them once during this call. A null in a key matches nothing.

    Args:
        stream: The rows, streaming or not.
        table: A batch frame.
        by: The columns that must be equal, with the same names in both.
        how: "left" keeps rows of the stream without a match and fills the table's columns with nulls; "inner"
            drops these rows.
        prefix: The prefix for the table's columns whose names the stream has, too.
        check: Whether to run a Spark job that raises an error if the table has a key twice.

    Returns:
        The columns of the stream, then the non-key columns of the table.

    Raises:
        Invalid: The table is a stream, a column is missing or has the wrong type, both have a column with the
            same name and there is no prefix, or the table has a key twice.

    Example:
        menu = spark.createDataFrame([("tea", "hot"), ("lemonade", "cold")], "drink string, served string")
        orders = hf.enrich(events, menu, by="drink", check=True)
        assert orders.columns == [*events.columns, "served"]
    """
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    one_of(how, f"{_ENRICH}: how", list(_TABLE_JOINS))
    if table.isStreaming:
        raise Invalid(
            "the table to join is a stream, not a batch frame",
            code="HF-E2306",
            where=_ENRICH,
            hint="to join two streams, use holdfast.join_within(left, right, by=…, times=…, bound=…)",
        )
    keys = key_columns(stream, by, where=_ENRICH)
    require_columns(table, keys, where=_ENRICH)
    check_key_types(stream, table, keys, where=_ENRICH)
    prefixes = None if prefix is None else ("", prefix)
    _, added = result_names(stream.columns, table.columns, keys, prefixes, where=_ENRICH, hint=_PREFIX)
    if check:
        _check_unique(table, keys)
    joined = stream.alias("l").join(table.alias("r"), same_keys(keys), _TABLE_JOINS[how])
    return joined.select(
        *(F.col(f"l.{quoted(name)}") for name in stream.columns),
        *(F.col(f"r.{quoted(old)}").alias(new) for old, new in added),
    )


def _check_unique(table: DataFrame, keys: list[str]) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    columns = [F.col(quoted(key)) for key in keys]
    present = table.filter(reduce(and_, (column.isNotNull() for column in columns)))
    counted = present.groupBy(*columns).agg(F.count("*").alias(_COUNT)).filter(F.col(_COUNT) > 1)
    twice = [tuple(row) for row in counted.limit(_SHOWN).collect()]
    if twice:
        shown = "; ".join(
            f"{row[-1]} rows for {', '.join(map(repr, row[:-1]))}" for row in sorted(twice, key=repr)
        )
        raise Invalid(
            "the table has several rows for a key, so rows of the stream would be duplicated",
            code="HF-E2307",
            where=f"{_ENRICH}: {', '.join(keys)}",
            found=shown,
            expected="one row per key",
            hint=f"keep one row per key with table.dropDuplicates({keys!r}), or join by more columns",
        )


# A function of both sides, with watermarks, and of the condition that the keys of rows `l` and `r` are equal.
Parted = Callable[["DataFrame", "DataFrame"], "tuple[DataFrame, DataFrame, Column]"]

JoinKind = Literal["inner", "left", "right", "full", "semi"]

_SPARK_KINDS: Final = {
    "inner": "inner",
    "left": "left_outer",
    "right": "right_outer",
    "full": "full_outer",
    "semi": "left_semi",
}
_WHERE: Final = "holdfast.join_within(…)"
# The sides from which Spark removes rows with a null key before the join, because they cannot match.
_NEED_A_KEY: Final = {
    "inner": (True, True),
    "left": (False, True),
    "right": (True, False),
    "full": (False, False),
    "semi": (True, True),
}
_PREFIXES: Final = 'rename {name}, or give prefixes=("left_", "right_") for left_{name} and right_{name}'
_WHY: Final = "without one, rows waiting for a match are kept for ever"


def join_within(
    left: DataFrame,
    right: DataFrame,
    *,
    by: str | Iterable[str],
    times: tuple[str, str],
    bound: Duration | tuple[Duration, Duration],
    kind: JoinKind = "inner",
    watermark: Duration | tuple[Duration, Duration] | None = None,
    prefixes: tuple[str, str] | None = None,
    side_outputs: bool = False,
) -> DataFrame:
    """Join rows that have the same key and event times within a bound.

    Two rows match if the right time is in `[left time, left time + bound]`; a pair of bounds such as
    `("-1 minute", "5 minutes")` sets both ends, relative to the left time. Both ends are included.

    The result has the keys once, then the other columns of the left side, then those of the right side. With
    `semi` it has only the left side, each row at most once. In an outer join, a row without a match has nulls
    for the other side and is returned when the watermark has passed the bound; until then Spark stores it. A
    null in a key never matches. The watermark of a query with two streams is the *slower* one, so a side
    without new rows holds the query back, unless its watermark was set by `hf.watermarked` with `idle_after`.

    Two batch frames can be joined, too, for a backfill or a test; they need no watermark.

    Args:
        left: The left side.
        right: The right side, streaming if and only if the left is.
        by: The columns that must be equal, with the same names on both sides.
        times: The event-time column of the left and of the right side.
        bound: The maximum time by which the right row is later than the left row, or both ends.
        kind: The type of join: `inner`, `left`, `right`, `full` (outer joins) or `semi`.
        watermark: The allowed lateness of a row, for both sides or one for each; None if the frames have
            watermarks.
        prefixes: The prefixes for column names that both sides have, left and right, for example `("order_",
            "payment_")`.
        side_outputs: Whether to return late rows of both sides, too. The columns `side` ("late", or null for
            a row of the join), `side_stream` ("left" or "right"), `side_event` (the row as JSON) and
            `side_error` (always null) are added; a late row has nulls for the others. Both streams are read a
            second time for late rows, so Spark counts their rows twice. Set it at the first start.

    Raises:
        Invalid: A kind, column, bound or watermark is invalid or missing, both sides have a column with the
            same name and there are no prefixes, or side outputs are not supported for these frames. Spark
            would report most of these errors only when the query starts.

    Example:
        from pathlib import Path

        Path("payments").mkdir()
        payments = spark.readStream.schema("customer string, paid double, paid_at timestamp").json("payments")
        paid = hf.join_within(
            events,
            payments.withWatermark("paid_at", "10 minutes"),
            by="customer",
            times=("ts", "paid_at"),
            bound="15 minutes",
        )
        assert paid.columns == ["customer", "drink", "amount", "ts", "paid", "paid_at"]
    """
    return bounded_join(
        left, right, by=by, times=times, bound=bound, kind=kind, watermark=watermark, prefixes=prefixes,
        side_outputs=side_outputs,
    )  # fmt: skip


def bounded_join(
    left: DataFrame,
    right: DataFrame,
    *,
    by: str | Iterable[str],
    times: tuple[str, str],
    bound: Duration | tuple[Duration, Duration],
    kind: JoinKind,
    watermark: Duration | tuple[Duration, Duration] | None,
    prefixes: tuple[str, str] | None,
    parted: Parted | None = None,
    side_outputs: bool = False,
) -> DataFrame:
    """Join as `join_within` does; with `parted`, matching rows must also be in the same part of their key."""
    one_of(kind, f"{_WHERE}: kind", list(_SPARK_KINDS))
    _check_pair(left, right)
    keys = key_columns(left, by, where=_WHERE)
    for side, time in zip((left, right), times, strict=True):
        require_time(side, time, where=_WHERE)
        require_columns(side, keys, where=_WHERE)
    check_key_types(left, right, keys, where=_WHERE)
    refuse_time_key(times, keys, where=_WHERE)
    low, high = _ends(bound)
    delays = watermark if isinstance(watermark, tuple) else (watermark, watermark)
    sides = []
    for side, time, delay in zip((left, right), times, delays, strict=True):
        marked = with_watermark(side, time, delay, where=_WHERE)
        require_watermark(marked, time, where=_WHERE, why=_WHY)
        sides.append(marked)
    names = _names(left.columns, right.columns, keys, prefixes, kind)
    left, right = sides
    one, two, same_key = (left, right, same_keys(keys)) if parted is None else parted(left, right)
    condition = reduce(and_, _within(times, low, high), same_key)
    joined = one.alias("l").join(two.alias("r"), condition, _SPARK_KINDS[kind])
    result = joined.select(*_columns(keys, names, kind))
    if not side_outputs:
        return result
    check_side_outputs(sides, result.columns, where=_WHERE)
    return with_late_rows(result, _late_sides(sides, times, keys, kind))


def _late_sides(
    sides: list[DataFrame], times: tuple[str, str], keys: list[str], kind: str
) -> list[DataFrame]:
    """Return the late rows of each side, without those that Spark filters out before the join."""
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    late = []
    for side, time, name, needed in zip(sides, times, ("left", "right"), _NEED_A_KEY[kind], strict=True):
        rows = side
        for key in keys if needed else ():
            rows = rows.filter(F.col(quoted(key)).isNotNull())
        late.append(late_side(rows, F.col(quoted(time)), stream=name, event=side.columns))
    return late


def _check_pair(left: DataFrame, right: DataFrame) -> None:
    if left.isStreaming != right.isStreaming:
        raise Invalid(
            "join_within cannot join a stream with a batch frame",
            code="HF-E2308",
            where=_WHERE,
            found="a stream on the left, a batch frame on the right"
            if left.isStreaming
            else "a batch frame on the left, a stream on the right",
            hint="to join a stream with a table, use holdfast.enrich(stream, table, by=…)",
        )


def _ends(bound: Duration | tuple[Duration, Duration]) -> tuple[int, int]:
    low, high = bound if isinstance(bound, tuple) else (0, bound)
    ends = _signed(low), _signed(high)
    if ends[0] > ends[1]:
        raise Invalid(
            "the bound ends before it begins",
            code="HF-E2309",
            where=f"{_WHERE}: bound",
            found=f"({spark_interval(ends[0])}, {spark_interval(ends[1])})",
            expected="the earlier end first",
            hint=f'write bound=("{spark_interval(ends[1])}", "{spark_interval(ends[0])}")',
        )
    return ends


def _signed(value: Duration) -> int:
    """Parse a duration that may be negative, because an end of the bound may be before the left row."""
    setting = f"{_WHERE}: bound"
    if isinstance(value, str):
        text = value.strip()
        negative, size = text.startswith("-"), text.removeprefix("-")
        ms = parse_duration(size, setting, allow_zero=True)
    else:
        negative = value < timedelta(0) if isinstance(value, timedelta) else value < 0
        ms = parse_duration(-value if negative else value, setting, allow_zero=True)
    return -ms if negative else ms


def _names(
    left: list[str], right: list[str], keys: list[str], prefixes: tuple[str, str] | None, kind: str
) -> tuple[Pairs, Pairs]:
    """Return pairs of each non-key column and its name in the result, for the left and the right side."""
    if kind == "semi":
        return [(name, name) for name in left if name not in keys], []
    return result_names(left, right, keys, prefixes, where=_WHERE, hint=_PREFIXES)


def _within(times: tuple[str, str], low: int, high: int) -> tuple[Column, Column]:
    """Return the conditions that the time of a row `r` is within the bound of a row `l`, ends included."""
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    one, two = (F.col(f"{side}.{quoted(time)}") for side, time in zip("lr", times, strict=True))
    earliest = one + F.expr(f"INTERVAL {spark_interval(low)}") if low else one
    latest = one + F.expr(f"INTERVAL {spark_interval(high)}") if high else one
    return two >= earliest, two <= latest


def _columns(keys: list[str], names: tuple[Pairs, Pairs], kind: str) -> list[Column]:
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    def key_of(key: str) -> Column:
        sides = [F.col(f"{side}.{quoted(key)}") for side in "lr"]
        if kind == "full":
            return F.coalesce(*sides).alias(key)
        return sides[1] if kind == "right" else sides[0]

    chosen = [key_of(key) for key in keys]
    for side, pairs in zip("lr", names, strict=True):
        chosen += [F.col(f"{side}.{quoted(old)}").alias(new) for old, new in pairs]
    return chosen
