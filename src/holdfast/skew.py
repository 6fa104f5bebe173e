"""The functions of `hf.skew`: finding keys with too many rows, and aggregates for these keys.

Example:
    orders = spark.createDataFrame([("ann", 1), ("ann", 2), ("bob", 1)], "customer string, cups int")
    hot = hf.skew.find(orders, by="customer", share=0.5)
    assert hot == ["ann"]

    cups = hf.split_hot(orders, by="customer", hot=hot).agg(hf.skew.sum("cups"))
    assert cups.columns == ["customer", "sum(cups)"]
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, cast, overload

from holdfast.model import HeavyKey, SkewReport
from holdfast.stream.key_skew import find, report_frame, report_query, watch
from holdfast.stream.split_aggregates import SplitAggregate, avg, count, count_distinct, stddev, variance
from holdfast.stream.split_aggregates import greatest as max  # noqa: A004 - the words that people know
from holdfast.stream.split_aggregates import least as min  # noqa: A004 - as above
from holdfast.stream.split_aggregates import total as sum  # noqa: A004 - as above

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = [
    "HeavyKey",
    "SkewReport",
    "SplitAggregate",
    "avg",
    "count",
    "count_distinct",
    "find",
    "max",
    "min",
    "report",
    "stddev",
    "sum",
    "variance",
    "watch",
]


@overload
def report(
    source: DataFrame,
    *,
    by: str | Iterable[str],
    partitions: int | None = None,
    every: int = 1,
    heavy: int = 10,
) -> SkewReport: ...


@overload
def report(source: StreamingQuery | str, *, home: str | Path | None = None) -> tuple[SkewReport, ...]: ...


def report(
    source: DataFrame | StreamingQuery | str,
    *,
    by: str | Iterable[str] | None = None,
    partitions: int | None = None,
    every: int = 1,
    heavy: int = 10,
    home: str | Path | None = None,
) -> SkewReport | tuple[SkewReport, ...]:
    """Report the keys with the most rows, their shares and their partitions.

    For a batch frame, the function runs one Spark job, which reads only the key's columns and counts each key
    as text; `every=16` examines one row in sixteen. For a query or a job, it reads the report of the newest
    batch at no cost; `hf.skew.watch` must be in the plan.

    Shares are estimated with Spark's sketch, which never undercounts a key and overcounts it by at most 0.02
    % of the rows; with fewer than 10,000 different keys, counts are exact. `error` includes this error and
    the sampling error. A key's partition is `pmod(hash(key columns), partitions)`, as in a Spark shuffle by
    these columns. A time window adds its time to the hash and so spreads a key over several partitions.

    Args:
        source: A batch frame, a running or stopped query, or the name of a job.
        by: For a frame: the columns of the key.
        partitions: For a frame: the number of partitions of the shuffle; None omits partitions from the
            report.
        every: For a frame: the sampling interval; one row in this many is examined.
        heavy: For a frame: the number of keys to report.
        home: For a job: the state home, as in `holdfast --home`.

    Returns:
        One report for a frame; for a query or job, one per watched name.

    Raises:
        Invalid: A column does not exist, a number is out of range, or the frame is a stream.
        NotFound: The job does not exist, or does not watch skew.

    Example:
        orders = spark.createDataFrame([("ann",), ("ann",), ("bob",), ("cy",)], "customer string")
        report = hf.skew.report(orders, by="customer")
        assert [key.share for key in report.heavy] == [0.5, 0.25, 0.25]
    """
    if isinstance(source, str):
        from holdfast.jobs.reports import report_job

        return report_job(source, home)
    # Looked up on the class, because attributes of a frame are its columns.
    if hasattr(type(source), "recentProgress"):
        return report_query(cast("StreamingQuery", source))
    frame = cast("DataFrame", source)
    return report_frame(frame, by=by or (), partitions=partitions, every=every, heavy=heavy)
