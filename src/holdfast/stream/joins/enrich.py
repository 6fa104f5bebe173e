"""A stream joined with a table at rest, as Spark's own join; it needs no state."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Final, Literal

from holdfast.config.checks import one_of
from holdfast.errors import Invalid
from holdfast.stream.event_time import key_columns, quoted, require_columns
from holdfast.stream.joins.sides import check_key_types, result_names, same_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EnrichKind = Literal["left", "inner"]

_SPARK_KINDS: Final = {"left": "left_outer", "inner": "inner"}
_WHERE: Final = "holdfast.enrich(…)"
_PREFIX: Final = 'rename one, or give prefix="table_", for table_{name}'
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
    """Add the columns of a table's row to each row of a stream that has the same key.

    Each batch reads the table anew; nothing is kept between batches. What a batch then sees of a table that
    changes depends on how it was read: see the guide on operators. A watermark stays on its column.

    A row of the stream comes once for each row of the table that has its key. Give the table unique keys, or
    say `check=True`, which counts them once, here. A null in a key meets nobody.

    Args:
        stream: The rows, streaming or not.
        table: A batch frame.
        by: The columns that must be equal, with the same names in both.
        how: "left" keeps rows of the stream that meet nobody, with nulls; "inner" drops them.
        prefix: What to put before names of the table that the stream has too.
        check: Run a job that refuses a table in which a key comes twice.

    Returns:
        The columns of the stream, then those of the table but the keys.

    Raises:
        Invalid: The table is a stream, a column is wrong or missing, both have columns of one name and there
            is no prefix, or a key comes twice in the table.
    """
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    one_of(how, f"{_WHERE}: how", list(_SPARK_KINDS))
    if table.isStreaming:
        raise Invalid(
            "the table is a stream",
            where=_WHERE,
            expected="a batch frame",
            hint="join two streams by holdfast.join_within(left, right, by=…, times=…, bound=…)",
        )
    keys = key_columns(stream, by, where=_WHERE)
    require_columns(table, keys, where=_WHERE)
    check_key_types(stream, table, keys, where=_WHERE)
    prefixes = None if prefix is None else ("", prefix)
    _, added = result_names(stream.columns, table.columns, keys, prefixes, where=_WHERE, hint=_PREFIX)
    if check:
        _check_unique(table, keys)
    joined = stream.alias("l").join(table.alias("r"), same_keys(keys), _SPARK_KINDS[how])
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
        shown = ", ".join(
            f"{', '.join(map(repr, row[:-1]))} {row[-1]} times" for row in sorted(twice, key=repr)
        )
        raise Invalid(
            "a key comes more than once in the table, and rows of the stream would be doubled",
            where=f"{_WHERE}: {', '.join(keys)}",
            found=shown,
            expected="one row a key",
            hint=f"keep one of them: table.dropDuplicates({keys!r}), or join by more columns",
        )
