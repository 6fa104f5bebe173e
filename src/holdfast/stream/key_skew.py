"""The detection of keys with too many rows, in a batch frame or in a running stream.

Spark's own sketch counts the keys, in bounded memory and with a known error; see `engine.skew_metric`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from holdfast.config.checks import whole
from holdfast.engine.queries.skew_metric import (
    SKEW_METRIC,
    TRACKED,
    items_of,
    metric,
    report_of,
    skew_in,
    typed_keys,
    with_item,
    without_item,
)
from holdfast.errors import Invalid, NotFound
from holdfast.model import SkewReport
from holdfast.stream.event_time import NOT_KEYS, key_columns, quoted, require_stream
from holdfast.stream.keyed.keyed_stream import check_share

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


# One row of a stream in this many is sampled, because the sketch is too expensive for all rows.
EVERY: Final = 128
HEAVY: Final = 10
# The name of the report on a batch frame.
_FRAME: Final = "frame"
_PARTITION: Final = "_holdfast_partition"


def watch(
    df: DataFrame, *, by: str | Iterable[str], name: str, every: int = EVERY, heavy: int = HEAVY
) -> DataFrame:
    """Count the most frequent keys in each batch of a stream while it runs.

    The rows pass unchanged. `hf.skew.report(query)` returns the counts of the newest batch, and `holdfast
    skew JOB` prints them for a job. Rows are counted at the point of the call: before a window or a join,
    these are the arriving rows.

    One row in `every` is counted, chosen at random. The sampling error of a share is at most `1.5 /
    sqrt(sampled rows)`, three standard deviations: 2.4 % for a batch of 500,000 rows and 17 % for one of
    10,000. With `every=1` all rows are counted, which leaves only the sketch's own error of 0.02 %, but
    converts each row's key to text.

    Do not watch the result of an aggregate, where each key has one row.

    Args:
        df: A stream.
        by: The key columns.
        name: The name of the report, unique in the query.
        every: The sampling interval: one row in this many is counted.
        heavy: The number of keys to report.

    Raises:
        Invalid: The frame is not a stream, a column is missing or cannot be a key, or a number is out of
            range.

    Example:
        orders = hf.skew.watch(events, by="customer", name="orders", every=1)
        query = (
            hf.sink(orders)
            .parquet("tables/sales")
            .start(checkpoint="checkpoints/sales", trigger=hf.available_now())
        )
        query.awaitTermination()

        [report] = hf.skew.report(query)
        assert (report.name, report.heavy[0].key) == ("orders", ("ann",))
    """
    where = "holdfast.skew.watch(…)"
    require_stream(df, where=where, hint="for a batch frame, call hf.skew.report(df, by=…)")
    keys = key_columns(df, by, where=where, refused=NOT_KEYS)
    if not name:
        raise Invalid(
            "no name given for the report",
            code="HF-E2310",
            where=where,
            hint='give a name that is unique in the query, as in name="orders"',
        )
    every, heavy = _sizes(every, heavy, where)
    counted = with_item(df, _columns(keys), every)
    return without_item(counted.observe(f"{SKEW_METRIC}{name}", *metric(name, keys, every, heavy)))


def report_frame(
    df: DataFrame, *, by: str | Iterable[str], partitions: int | None, every: int, heavy: int
) -> SkewReport:
    """Count the most frequent keys of a batch frame, and the rows of each partition, in one Spark job."""
    report, _ = _counted(df, by, partitions=partitions, every=every, heavy=heavy)
    return report


def report_query(query: StreamingQuery) -> tuple[SkewReport, ...]:
    """Return the report of `watch` for the newest batch with rows."""
    progress: Mapping[str, Any]
    for progress in reversed(query.recentProgress):
        if reports := skew_in(progress):
            return reports
    raise NotFound(
        "no key-skew report from this query yet",
        code="HF-E3062",
        where=f"query {query.name or query.id}",
        found=f"{len(query.recentProgress)} recent batches without a report",
        hint="add hf.skew.watch(df, by=…, name=…) to the query's plan, and wait for a batch with rows",
    )


def find(
    df: DataFrame, *, by: str | Iterable[str], share: float = 0.05, every: int = 1, most: int = 100
) -> list[Any]:
    """Return the keys of a batch frame with at least this share of its rows, in descending order of rows.

    Pass the result to `hf.split_hot(hot=…)`; it consists of values, or of tuples if there are several key
    columns. Run this function once on a sample of the input, and write the keys into the job. To change the
    hot keys of a join of streams later, use `hf.change(…).split(…)`.

    Args:
        df: A batch frame, such as the files of the previous day.
        by: The key columns.
        share: The minimum share.
        every: The sampling interval: one row in this many is counted.
        most: The maximum number of keys to return.

    Raises:
        Invalid: A column, the share or a number is invalid, or the frame is a stream.

    Example:
        yesterday = spark.createDataFrame([("ann",), ("ann",), ("bob",), ("cy",)], "customer string")
        assert hf.skew.find(yesterday, by="customer", share=0.5) == ["ann"]
    """
    where = "holdfast.skew.find(…)"
    check_share(share, where)
    report, values = _counted(df, by, partitions=None, every=every, heavy=most)
    items = items_of(values)[: sum(key.share >= share for key in report.heavy)]
    heavy = typed_keys(df.sparkSession, items, [df.schema[key] for key in report.by])
    return [key[0] for key in heavy] if len(report.by) == 1 else heavy


def _counted(
    df: DataFrame, by: str | Iterable[str], *, partitions: int | None, every: int, heavy: int
) -> tuple[SkewReport, Mapping[str, Any]]:
    """Return the report on a batch frame, and the metric from which it is computed."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812 - as above

    where = "holdfast.skew.report(…)"
    if df.isStreaming:
        raise Invalid(
            "key skew of a stream can be reported only while it runs",
            code="HF-E2311",
            where=where,
            hint="add hf.skew.watch(df, by=…, name=…) to the stream's plan, then call hf.skew.report(query)",
        )
    keys = key_columns(df, by, where=where, refused=NOT_KEYS)
    every, heavy = _sizes(every, heavy, where)
    if partitions is not None:
        whole(partitions, f"{where}: partitions", least=1)
    observation = Observation(f"{SKEW_METRIC}{_FRAME}")
    counted = with_item(df.select(*_columns(keys)), _columns(keys), every)
    counted = counted.observe(observation, *metric(_FRAME, keys, every, heavy))
    place = F.pmod(F.hash(*_columns(keys)), F.lit(partitions or 1))
    rows = {row[0]: row[1] for row in counted.groupBy(place.alias(_PARTITION)).count().collect()}
    values = observation.get
    report = report_of(values, partitions)
    if partitions is not None:
        shares = tuple(rows.get(partition, 0) / max(1, report.rows) for partition in range(partitions))
        report = replace(report, partitions=shares)
    return replace(report, estimated=False), values


def _columns(keys: Sequence[str]) -> list[Column]:
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    return [F.col(quoted(key)) for key in keys]


def _sizes(every: int, heavy: int, where: str) -> tuple[int, int]:
    """Check the sampling interval and the number of keys, which is limited by the sketch."""
    return whole(every, f"{where}: every", least=1), whole(
        heavy, f"{where}: heavy", least=1, most=TRACKED - 1
    )
