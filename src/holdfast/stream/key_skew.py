"""Find the keys that have too many rows, in a batch frame or in a stream that runs.

Spark's own sketch counts them, in bounded memory and with a known error; see `engine.skew_metric`.
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


# Of a stream one row in so many is looked at: the sketch costs more than many a batch can spare.
EVERY: Final = 128
HEAVY: Final = 10
# What the report of a batch frame is called.
_FRAME: Final = "frame"
_PARTITION: Final = "_holdfast_partition"


def watch(
    df: DataFrame, *, by: str | Iterable[str], name: str, every: int = EVERY, heavy: int = HEAVY
) -> DataFrame:
    """Count the most frequent keys of each batch of a stream, on its way.

    The rows pass unchanged. `hf.skew.report(query)` reads what the newest batch brought, and so does
    `holdfast skew JOB` for a job. The rows are looked at where you call it: before a window or a join the
    keys of what arrives.

    One row in `every` is counted, chosen by chance. A share is then off by as much as samples are: at most
    `1.5 / sqrt(rows looked at)`, three standard deviations, which is 2.4 % for a batch of 500,000 rows and
    17 % for one of 10,000. `every=1` counts all rows: then only the sketch's own error remains, 0.02 %, and
    each row is written as text and counted.

    The classic mistake is to watch what comes out of an aggregate, where each key has one row.

    Args:
        df: A stream.
        by: The columns of the key.
        name: What the report is called, one in each query.
        every: How many rows continue one that is looked at.
        heavy: How many keys are reported.

    Raises:
        Invalid: The frame is not a stream, a column is missing or cannot be a key, or a number is wrong.
    """
    where = "holdfast.skew.watch(…)"
    require_stream(df, where=where, hint="look at it at once: hf.skew.report(df, by=…)")
    keys = key_columns(df, by, where=where, refused=NOT_KEYS)
    if not name:
        raise Invalid(
            "what is watched needs a name",
            code="HF-E2310",
            where=where,
            found="none",
            expected="name=…",
            hint='give it one that tells it from others of the query: name="orders"',
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
    """Return the report of `watch` on the newest batch that had rows."""
    progress: Mapping[str, Any]
    for progress in reversed(query.recentProgress):
        if reports := skew_in(progress):
            return reports
    raise NotFound(
        "no batch of this query has watched its keys",
        code="HF-E3062",
        where=f"query {query.name or query.id}",
        found=f"{len(query.recentProgress)} batches reported",
        hint="put hf.skew.watch(df, by=…, name=…) into its plan, and wait for a batch with rows",
    )


def find(
    df: DataFrame, *, by: str | Iterable[str], share: float = 0.05, every: int = 1, most: int = 100
) -> list[Any]:
    """The keys of a batch frame that have at least this share of its rows, the heaviest first.

    What `hf.split_hot(hot=…)` takes: values, or tuples where the key has several columns. Look once, at a
    sample of what arrives, and write the answer down in the job: a query's hot keys cannot change.

    Args:
        df: A batch frame, such as yesterday's files.
        by: The columns of the key.
        share: The least share.
        every: Look at one row in so many only.
        most: The most keys to return.

    Raises:
        Invalid: A column, the share or a number is wrong, or the frame is a stream.
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
    """The report of a batch frame, and the metric that it was made of."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812 - as above

    where = "holdfast.skew.report(…)"
    if df.isStreaming:
        raise Invalid(
            "a stream cannot be looked at before it runs",
            code="HF-E2311",
            where=where,
            hint="put hf.skew.watch(df, by=…, name=…) into its plan, and ask hf.skew.report(query)",
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
    """Both as they were given; the sketch knows no more keys than it tracks."""
    return whole(every, f"{where}: every", least=1), whole(
        heavy, f"{where}: heavy", least=1, most=TRACKED - 1
    )
