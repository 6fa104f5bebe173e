"""See which keys have too many rows, and say what is to be computed of them: `hf.skew`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, cast, overload

from holdfast.model import HeavyKey, SkewReport
from holdfast.stream.key_skew import find, report_frame, report_query, watch
from holdfast.stream.split_aggregates import Aggregate, avg, count, count_distinct, stddev, variance
from holdfast.stream.split_aggregates import greatest as max  # noqa: A004 - the words that people know
from holdfast.stream.split_aggregates import least as min  # noqa: A004 - as above
from holdfast.stream.split_aggregates import total as sum  # noqa: A004 - as above

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = [
    "Aggregate",
    "HeavyKey",
    "SkewReport",
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
    """Tell which keys have the most rows, which share that is, and in which partitions they are.

    Of a batch frame it runs one Spark job, which reads the key's columns alone and counts each
    row's key as text; `every=16` looks at one row in sixteen. Of a query or of a job it reads what the
    newest batch reported, which costs nothing: `hf.skew.watch` must be in its plan.

    Shares come from Spark's own sketch. It never counts a key too low, and too high by at most 0.02 % of
    the rows; with fewer than 10,000 different keys it is exact. `error` says so, and what a sample adds.
    A partition is Spark's: `pmod(hash(key columns), partitions)`, as a shuffle by these columns alone has
    it. A window over the time puts the time into the hash as well, and spreads a key by it.

    Args:
        source: A batch frame, a query that runs or has stopped, or the name of a job.
        by: For a frame: the columns of the key.
        partitions: For a frame: how many partitions the shuffle has; None leaves them out.
        every: For a frame: look at one row in so many.
        heavy: For a frame: how many keys to report.
        home: For a job: the state home, as `holdfast --home` has it.

    Returns:
        One report of a frame; of a query or job one for each name that is watched.

    Raises:
        Invalid: A column or a number is wrong, or the frame is a stream.
        NotFound: The job does not exist, or nothing of it is watched.
    """
    if isinstance(source, str):
        from holdfast.jobs.reports import report_job

        return report_job(source, home)
    # Asked of the class: a frame answers for its columns.
    if hasattr(type(source), "recentProgress"):
        return report_query(cast("StreamingQuery", source))
    frame = cast("DataFrame", source)
    return report_frame(frame, by=by or (), partitions=partitions, every=every, heavy=heavy)
