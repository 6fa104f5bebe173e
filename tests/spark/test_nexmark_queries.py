"""The queries of Nexmark in Spark, with Holdfast and in plain PySpark, give the rows of SQL in DuckDB."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast_bench.nexmark.events import Timeline, write
from holdfast_bench.nexmark.expected import differences, opened
from holdfast_bench.nexmark.holdfast_queries import HOLDFAST, PYSPARK, QUERIES
from holdfast_bench.nexmark.plain_queries import Streams
from holdfast_bench.nexmark.spark_side import started

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SIDES = [
    (name, side)
    for name, query in QUERIES.items()
    for side in (HOLDFAST, PYSPARK)
    if side == HOLDFAST or query.plain not in (None, query.holdfast)
]
# Over midnight and over an hour at which the kind of day changes, in UTC.
TIMELINE = Timeline(dt.datetime(2026, 3, 5, 23, 59, 30, tzinfo=dt.timezone.utc), rate=100)


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nexmark") / "events"
    write(folder, rows=2000, batches=4, seed=11, timeline=TIMELINE)
    return folder


@pytest.fixture
def in_utc(spark: SparkSession) -> Iterator[SparkSession]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", before or "UTC")


@pytest.mark.parametrize(("name", "side"), SIDES)
def test_a_query_gives_the_rows_of_its_sql(
    in_utc: SparkSession, events: Path, tmp_path: Path, name: str, side: str
) -> None:
    query = QUERIES[name]
    streams = Streams(in_utc, events)
    if name == "q10":
        emitted = written(streams, side, tmp_path)
    else:
        emitted = collected(query.build(side, streams), query.mode(side), tmp_path)
    if name == "q12":
        emitted = with_open_windows(emitted, tmp_path / "checkpoint")
    with opened(events) as database:
        assert differences(database, name, emitted, query.keys) == {}


def collected(frame: DataFrame, mode: str, folder: Path) -> pa.Table:
    """Run a query over all files and return what it has emitted, with the number of the batch of each row."""
    from pyspark.sql import functions as F  # noqa: N812 - as everywhere with PySpark

    def keep(rows: DataFrame, batch: int) -> None:
        rows.withColumn("batch", F.lit(batch)).write.parquet(str(folder / "emitted" / str(batch)))

    query = (
        frame.writeStream.foreachBatch(keep)
        .outputMode(mode)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return pa.concat_tables(pq.read_table(path) for path in sorted((folder / "emitted").iterdir()))


def written(streams: Streams, side: str, folder: Path) -> pa.Table:
    """Run `q10` and return the rows of the files that it has written."""
    started(QUERIES["q10"], side, streams, folder).awaitTermination()
    fields = "auction long, bidder long, price long, dateTime timestamp, extra string, dt string, hm string"
    streams.spark.read.schema(fields).csv(str(folder / "bids")).write.parquet(str(folder / "read"))
    return pq.read_table(folder / "read")


def with_open_windows(emitted: pa.Table, checkpoint: Path) -> pa.Table:
    """Check the windows that are over, and add the counts of those that are still open, from the state."""
    for row in emitted.to_pylist():
        assert row["starttime"].timestamp() % 10 == 0
        assert row["endtime"] - row["starttime"] == dt.timedelta(seconds=10)
    # The query was not started by Holdfast, so the name of its key is not recorded.
    state: Any = hf.state(checkpoint)
    still_open = state.sql("SELECT key AS bidder, bids AS bid_count FROM bids")
    return pa.concat_tables([emitted.select(["bidder", "bid_count"]), still_open])
