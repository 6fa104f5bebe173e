"""The aggregates that can be computed exactly from parts.

A Spark column does not expose what it computes, so these aggregates are Holdfast classes. A stream uses
Spark's own aggregates. For a batch frame with hot keys, an aggregate is split into sums, counts, minima and
maxima of the parts, which are then combined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from holdfast.errors import Invalid
from holdfast.stream.event_time import quoted, refuse_repeated, require_columns, type_of
from holdfast.stream.keyed.hot_keys import PART, HotKeys

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


Kind = Literal[
    "count", "sum", "min", "max", "avg", "variance", "var_pop", "stddev", "stddev_pop", "count_distinct"
]

_WHERE: Final = "holdfast.split_hot(…).agg(…)"
_WHOLE: Final = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
# A sum of decimals has ten digits more than its input, and a decimal has at most 38 digits.
_SUM_DIGITS: Final = 28
_AVG_DIGITS: Final = 23
# Squares have twice as many digits, and sums of squares are multiplied by a count.
_SQUARE_DIGITS: Final = 10
_SPREADS: Final = ("variance", "var_pop", "stddev", "stddev_pop")
_PREFIX: Final = "_holdfast_"


@dataclass(frozen=True, slots=True)
class SplitAggregate:
    """One aggregate of `hf.split_hot(…).agg(…)`, returned by the functions of `hf.skew`.

    Attributes:
        kind: The function.
        column: The input column, or None to count rows.
        name: The name of the result column.

    Example:
        total = hf.skew.sum("cups")
        assert (total.kind, total.column, total.name) == ("sum", "cups", "sum(cups)")
        assert total.alias("cups").name == "cups"
    """

    kind: Kind
    column: str | None
    name: str

    def alias(self, name: str) -> SplitAggregate:
        """Return the aggregate with a different result name."""
        return replace(self, name=name)


def _build_aggregate(kind: Kind, column: str) -> SplitAggregate:
    return SplitAggregate(kind, column, f"{kind}({column})")


def count(column: str | None = None) -> SplitAggregate:
    """Return the aggregate that counts rows, or the non-null values of a column.

    Args:
        column: The column, or None to count rows.

    Example:
        orders = spark.createDataFrame([("ann", "tea"), ("ann", None)], "customer string, drink string")
        split = hf.split_hot(orders, by="customer", hot=["ann"])
        [row] = split.agg(hf.skew.count(), hf.skew.count("drink").alias("drinks")).collect()
        assert (row["count"], row["drinks"]) == (2, 1)
    """
    return SplitAggregate("count", column, "count" if column is None else f"count({column})")


def total(column: str) -> SplitAggregate:
    """Return the aggregate that sums a column.

    Args:
        column: The column. In a batch frame its type must be an integer or a decimal of at most 28 digits.

    Example:
        orders = spark.createDataFrame([("ann", 1), ("ann", 2)], "customer string, cups int")
        split = hf.split_hot(orders, by="customer", hot=["ann"])
        [row] = split.agg(hf.skew.sum("cups")).collect()
        assert row["sum(cups)"] == 3
    """
    return _build_aggregate("sum", column)


def least(column: str) -> SplitAggregate:
    """Return the aggregate for the smallest value of a column.

    Example:
        orders = spark.createDataFrame([("ann", 1), ("ann", 2)], "customer string, cups int")
        split = hf.split_hot(orders, by="customer", hot=["ann"])
        [row] = split.agg(hf.skew.min("cups")).collect()
        assert row["min(cups)"] == 1
    """
    return _build_aggregate("min", column)


def greatest(column: str) -> SplitAggregate:
    """Return the aggregate for the largest value of a column.

    Example:
        orders = spark.createDataFrame([("ann", 1), ("ann", 2)], "customer string, cups int")
        split = hf.split_hot(orders, by="customer", hot=["ann"])
        [row] = split.agg(hf.skew.max("cups")).collect()
        assert row["max(cups)"] == 2
    """
    return _build_aggregate("max", column)


def avg(column: str) -> SplitAggregate:
    """Return the aggregate for the mean of a column: a double for integers, a decimal for decimals.

    Args:
        column: The column. In a batch frame its type must be an integer or a decimal of at most 23 digits.

    Example:
        orders = spark.createDataFrame([("ann", 1), ("ann", 2)], "customer string, cups int")
        split = hf.split_hot(orders, by="customer", hot=["ann"])
        [row] = split.agg(hf.skew.avg("cups")).collect()
        assert row["avg(cups)"] == 1.5
    """
    return _build_aggregate("avg", column)


def variance(column: str, *, population: bool = False) -> SplitAggregate:
    """Return the aggregate for the variance of a column; over a batch frame it is computed from exact sums.

    The last digits of Spark's own variance depend on the order of rows; those of this aggregate over a batch
    frame do not.

    Args:
        column: The column. In a batch frame its type must be an integer or a decimal of at most 10 digits,
            such as `int`.
        population: True for the variance of a population, False for that of a sample.

    Example:
        orders = spark.createDataFrame([("ann", 1), ("ann", 3)], "customer string, cups int")
        split = hf.split_hot(orders, by="customer", hot=["ann"])
        [row] = split.agg(hf.skew.variance("cups"), hf.skew.variance("cups", population=True)).collect()
        assert (row["variance(cups)"], row["var_pop(cups)"]) == (2.0, 1.0)
    """
    return _build_aggregate("var_pop" if population else "variance", column)


def stddev(column: str, *, population: bool = False) -> SplitAggregate:
    """Return the aggregate for the standard deviation of a column, the square root of `hf.skew.variance`.

    Args:
        column: The column, with the same types as for `hf.skew.variance`.
        population: True for the deviation of a population, False for that of a sample.

    Example:
        orders = spark.createDataFrame([("ann", 1), ("ann", 3)], "customer string, cups int")
        split = hf.split_hot(orders, by="customer", hot=["ann"])
        [row] = split.agg(hf.skew.stddev("cups", population=True).alias("deviation")).collect()
        assert row["deviation"] == 1.0
    """
    return _build_aggregate("stddev_pop" if population else "stddev", column)


def count_distinct(column: str) -> SplitAggregate:
    """Return the aggregate for the exact number of distinct non-null values of a column.

    A call of `agg` can have at most one such aggregate; over a stream it must be the only aggregate of the
    call.

    Example:
        rows = [("ann", "tea"), ("ann", "tea"), ("ann", "mocha")]
        orders = spark.createDataFrame(rows, "customer string, drink string")
        split = hf.split_hot(orders, by="customer", hot=["ann"])
        [row] = split.agg(hf.skew.count_distinct("drink").alias("drinks")).collect()
        assert row["drinks"] == 2
    """
    return _build_aggregate("count_distinct", column)


def aggregate_stream(frame: DataFrame, hot: HotKeys, aggregates: Sequence[SplitAggregate]) -> DataFrame:
    """Aggregate a stream by key with Spark's own plan; distinct values are counted after a deduplication."""
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    _check(frame, hot, aggregates)
    distinct = [aggregate for aggregate in aggregates if aggregate.kind == "count_distinct"]
    if distinct and len(aggregates) > 1:
        raise Invalid(
            "count_distinct over a stream cannot be combined with other aggregates",
            code="HF-E2389",
            where=_WHERE,
            found=", ".join(aggregate.name for aggregate in aggregates),
            hint="compute the other aggregates in a separate query",
        )
    if distinct:
        column = str(distinct[0].column)
        frame = frame.dropDuplicates(list(dict.fromkeys([*hot.by, column])))
        aggregates = [replace(distinct[0], kind="count")]
    groups = [F.col(quoted(name)) for name in hot.by]
    return frame.groupBy(*groups).agg(*(_native(aggregate).alias(aggregate.name) for aggregate in aggregates))


def aggregate_table(frame: DataFrame, hot: HotKeys, aggregates: Sequence[SplitAggregate]) -> DataFrame:
    """Aggregate a batch frame by part and then by key; without hot keys, in one phase."""
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    _check(frame, hot, aggregates)
    for aggregate in aggregates:
        _check_type(frame, aggregate)
    distinct = [aggregate for aggregate in aggregates if aggregate.kind == "count_distinct"]
    if len(distinct) > 1:
        raise Invalid(
            "agg supports only one count_distinct",
            code="HF-E2390",
            where=_WHERE,
            found=", ".join(aggregate.name for aggregate in distinct),
            hint="call agg once per column, and join the results by the key",
        )
    taken = [_taken_apart(frame, aggregate, at) for at, aggregate in enumerate(aggregates)]
    groups = [F.col(quoted(name)) for name in hot.by]
    if hot.keys:
        salt = F.xxhash64(F.col(quoted(str(distinct[0].column)))) if distinct else None
        groups_and_part = [*groups, F.col(PART)]
        parts = hot.split(frame, salt).groupBy(*groups_and_part)
    else:
        parts = frame.groupBy(*groups)
    counted = parts.agg(*(column for apart in taken for column in apart.parts))
    if hot.keys:
        counted = counted.groupBy(*groups).agg(*(column for apart in taken for column in apart.together))
    results = (apart.result.alias(aggregate.name) for apart, aggregate in zip(taken, aggregates, strict=True))
    return counted.select(*groups, *results)


@dataclass(frozen=True, slots=True)
class _TakenApart:
    """The columns of an aggregate over rows, over parts (with the same names), and of the result."""

    parts: tuple[Column, ...]
    together: tuple[Column, ...]
    result: Column


def _taken_apart(frame: DataFrame, aggregate: SplitAggregate, at: int) -> _TakenApart:
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    value = F.lit(1) if aggregate.column is None else F.col(quoted(aggregate.column))
    name = partial("{}{}_{}".format, _PREFIX, at)
    kind = aggregate.kind
    if kind in ("min", "max"):
        find = F.min if kind == "min" else F.max
        extreme = find(F.col(name("m"))).alias(name("m"))
        return _TakenApart((find(value).alias(name("m")),), (extreme,), F.col(name("m")))
    if kind in ("count", "count_distinct"):
        number = F.count(value) if kind == "count" else F.count_distinct(value)
        added = F.sum(F.col(name("n"))).alias(name("n"))
        return _TakenApart((number.alias(name("n")),), (added,), F.col(name("n")))
    column_type = type_of(frame, str(aggregate.column))
    digits, scale = _digits(column_type)
    if kind == "sum":
        # The type of a sum of sums has more digits than that of the sum, although the values are the same.
        kept = "bigint" if column_type in _WHOLE else f"decimal({digits + 10},{scale})"
        added = F.sum(F.col(name("s"))).cast(kept).alias(name("s"))
        return _TakenApart((F.sum(value).alias(name("s")),), (added,), F.col(name("s")))
    return _from_sums(value, column_type, kind, name)


def _from_sums(value: Column, found: str, kind: str, name: Any) -> _TakenApart:
    """Return the columns for a mean or variance, computed from sums that are exact in any order."""
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    digits, scale = _digits(found)
    spread = kind in _SPREADS
    # Squares are computed on integers: on the value without its decimal point.
    exact = value.cast(f"decimal({digits},{scale})")
    if spread:
        exact = (value * F.lit(10**scale)).cast(f"decimal({digits},0)") if scale else exact
    sums = {"n": F.count(value), "s": F.sum(exact)}
    if spread:
        sums["q"] = F.sum(exact * exact)
    parts = tuple(column.alias(name(key)) for key, column in sums.items())
    together = []
    for key in sums:
        width = 38 if key == "q" else digits + 10
        kept = "bigint" if key == "n" else f"decimal({min(38, width)},{0 if spread else scale})"
        together.append(F.sum(F.col(name(key))).cast(kept).alias(name(key)))
    n, s = F.col(name("n")), F.col(name("s"))
    if not spread:
        mean = s.cast("double") / n if found in _WHOLE else _decimal_mean(s, n, digits, scale)
        return _TakenApart(parts, tuple(together), F.when(n > 0, mean))
    # n Σx² - (Σx)² is an integer and therefore exact; rounding happens only afterwards.
    above = (n.cast("decimal(18,0)") * F.col(name("q"))).cast("decimal(38,0)")
    above = (above - (s * s).cast("decimal(38,0)")).cast("double") / F.lit(float(100**scale))
    size = n.cast("double")
    least_rows = 0 if kind.endswith("_pop") else 1
    found_variance = F.when(n > least_rows, above / (size * (size - F.lit(float(least_rows)))))
    result = F.sqrt(found_variance) if kind.startswith("stddev") else found_variance
    return _TakenApart(parts, tuple(together), result)


def _decimal_mean(s: Column, n: Column, digits: int, scale: int) -> Column:
    """Return the mean in Spark's result type; with at most 23 digits it is rounded once."""
    return (s / n.cast("decimal(20,0)")).cast(f"decimal({min(38, digits + 4)},{scale + 4})")


def _native(aggregate: SplitAggregate) -> Column:
    """Return Spark's column for an aggregate."""
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    value = F.lit(1) if aggregate.column is None else F.col(quoted(aggregate.column))
    sparks = {"variance": "var_samp", "stddev": "stddev_samp"}
    computed: Column = getattr(F, sparks.get(aggregate.kind, aggregate.kind))(value)
    return computed


def _check(frame: DataFrame, hot: HotKeys, aggregates: Sequence[Any]) -> None:
    if not aggregates:
        raise Invalid(
            "no aggregate given",
            code="HF-E2337",
            where=_WHERE,
            hint="give at least one aggregate, such as hf.skew.count()",
        )
    for aggregate in aggregates:
        if not isinstance(aggregate, SplitAggregate):
            raise Invalid(
                "agg supports only the aggregates of hf.skew",
                code="HF-E2391",
                where=_WHERE,
                found=str(aggregate),
                expected="hf.skew.count(), .sum, .min, .max, .avg, .variance, .stddev or .count_distinct",
                hint="compute first, last, collect_list, percentiles and other functions with "
                "df.groupBy(…).agg(…); they cannot be split exactly",
            )
        if aggregate.column is not None:
            require_columns(frame, [aggregate.column], where=_WHERE)
    names = [*hot.by, *(aggregate.name for aggregate in aggregates)]
    refuse_repeated(names, where=_WHERE, hint="name an aggregate, as in .alias(…)")


def _check_type(frame: DataFrame, aggregate: SplitAggregate) -> None:
    most = {"sum": _SUM_DIGITS, "avg": _AVG_DIGITS}
    limit = most.get(aggregate.kind, _SQUARE_DIGITS if aggregate.kind in _SPREADS else None)
    if limit is None:
        return
    column_type = type_of(frame, str(aggregate.column))
    if column_type in ("float", "double"):
        raise Invalid(
            f"the {aggregate.kind} of floats cannot be split exactly: it depends on their order",
            code="HF-E2392",
            where=_WHERE,
            found=f"`{aggregate.column}` {column_type}",
            expected="whole numbers or decimals",
            hint=f'cast it first: .withColumn("{aggregate.column}", F.col("{aggregate.column}")'
            '.cast("decimal(18,4)"))',
        )
    digits, _ = _digits(column_type)
    if digits == 0 or digits > limit:
        raise Invalid(
            f"the {aggregate.kind} of column `{aggregate.column}` cannot be split exactly",
            code="HF-E2393",
            where=_WHERE,
            found=str(column_type),
            expected=f"a whole number or decimal of at most {limit} digits",
            hint=f'cast it to a narrower type, such as "decimal({limit},0)"',
        )


def _digits(found: str) -> tuple[int, int]:
    """Return the number of digits of a type and its scale, or zeros for an inexact type."""
    if found in _WHOLE:
        return _WHOLE[found], 0
    if not found.startswith("decimal("):
        return 0, 0
    digits, scale = found.removeprefix("decimal(").removesuffix(")").split(",")
    return int(digits), int(scale)
