"""The measured process: runs one side from topic to topic, once, in its own Spark session."""

from __future__ import annotations

import datetime as dt
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import Failed
from holdfast_bench.keyed.keyed_process import local_session
from holdfast_bench.keyed.keyed_sides import totals
from holdfast_bench.latency.kafka_node import connector
from holdfast_bench.latency.latency_events import producer, send
from holdfast_bench.latency.latency_figures import Batch, Event, Output

if TYPE_CHECKING:
    from subprocess import Popen

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_EVENT: Final = "user long, amount double, sent long"
_TOTALS: Final = "user long, n long, total double"
# The query has this long to read what the producer has sent.
_DRAIN_S: Final = 120


@dataclass(frozen=True, slots=True)
class Task:
    """One run of a side.

    Attributes:
        side: The side.
        address: The broker.
        topic: The input topic; the output topic's name is the same with `-totals`.
        keys: The number of users; each has one event before the steady ones.
        rate: Events a second.
        count: The number of steady events.
        folder: An empty directory for the checkpoint and the files with both topics' records.
    """

    side: str
    address: str
    topic: str
    keys: int
    rate: int
    count: int
    folder: str


def run(spark: SparkSession, task: Task) -> list[Batch]:
    """Fill the state, run the query while a producer sends, write the records of both topics to files.

    Raises:
        Failed: The producer ended with an error, or the query fell behind.
    """
    folder = Path(task.folder)
    query, source = None, send(producer(task.address, task.topic, keys=task.keys, first=0, count=task.keys))
    try:
        _await_end(source, task)
        query = _start(totals(task.side, _events(spark, task)), task, folder / "checkpoint")
        _await_read(query, task, task.keys)
        source = send(
            producer(
                task.address, task.topic, keys=task.keys, first=task.keys, count=task.count, rate=task.rate
            )
        )
        while source.poll() is None:
            query.awaitTermination(1)  # raises what the query failed with
        _await_end(source, task)
        _await_read(query, task, task.keys + task.count)
        batches = _batches(query)
    finally:
        source.kill()
        if query is not None:
            query.stop()
    _write(spark, task, folder)
    return batches


def _events(spark: SparkSession, task: Task) -> DataFrame:
    """The input stream, with the Kafka options of Spark's own benchmark."""
    from pyspark.sql import functions

    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", task.address)
        .option("subscribe", task.topic)
        .option("startingOffsets", "earliest")
        .option("kafka.fetch.max.wait.ms", "10")
        .option("kafka.max.partition.fetch.bytes", "10485760")
        .load()
    )
    event = functions.from_json(functions.col("value").cast("string"), _EVENT)
    return records.select(event.alias("event"), functions.col("timestamp").alias("ts")).select(
        "event.user", "event.amount", "ts"
    )


def _start(answer: DataFrame, task: Task, checkpoint: Path) -> StreamingQuery:
    """Start a query without a trigger interval: its batches follow each other."""
    return (
        answer.selectExpr("cast(user as string) AS key", "to_json(struct(user, n, total)) AS value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", task.address)
        .option("topic", _output_topic(task))
        .option("kafka.compression.type", "snappy")
        .option("checkpointLocation", str(checkpoint))
        .outputMode("update")
        .start()
    )


def _output_topic(task: Task) -> str:
    return f"{task.topic}-totals"


def _await_end(source: Popen[bytes], task: Task) -> None:
    if source.wait() != 0 and source.stderr is not None:
        message = source.stderr.read().decode()[-2000:]
        raise Failed("the producer of the events failed", where=task.side, found=message)


def _await_read(query: StreamingQuery, task: Task, number: int) -> None:
    """Wait until batches that read so many events are committed."""
    until = time.monotonic() + _DRAIN_S
    read = 0
    while read < number:
        query.awaitTermination(1)  # raises what the query failed with
        last = query.lastProgress
        read = sum(_ends(last).values()) if last is not None else 0
        if time.monotonic() > until:
            raise Failed(
                "the query fell behind the events",
                where=task.side,
                found=f"{read:,} events read {_DRAIN_S} s after the last was sent",
                expected=f"{number:,}",
                hint="run the benchmark with fewer --rows",
            )


def _batches(query: StreamingQuery) -> list[Batch]:
    return [
        Batch(
            round(dt.datetime.fromisoformat(each["timestamp"].replace("Z", "+00:00")).timestamp() * 1000),
            int(each["durationMs"]["triggerExecution"]),
            _ends(each),
        )
        for each in query.recentProgress
        if each["numInputRows"]
    ]


def _ends(progress: Any) -> dict[int, int]:
    """The offset after the last event of each partition; an operator may have a source of its own."""
    (kafka,) = (each for each in progress["sources"] if each["description"].startswith("KafkaV2"))
    topics = kafka["endOffset"]
    topics = json.loads(topics) if isinstance(topics, str) else topics
    return {int(partition): int(end) for ends in (topics or {}).values() for partition, end in ends.items()}


def _write(spark: SparkSession, task: Task, folder: Path) -> None:
    """Write the records of both topics as Parquet files, which `read_events` and `read_outputs` read."""
    import pyarrow.parquet as pq

    events = _records(spark, task, task.topic, _EVENT, "r.user", "r.amount", "r.sent", "partition", "offset")
    pq.write_table(events, folder / "events.parquet")
    created = "unix_millis(timestamp) AS created"
    outputs = _records(spark, task, _output_topic(task), _TOTALS, "r.user", "r.n", "r.total", created)
    pq.write_table(outputs, folder / "outputs.parquet")


def _records(spark: SparkSession, task: Task, topic: str, schema: str, *columns: str) -> Any:
    records = spark.read.format("kafka").option("kafka.bootstrap.servers", task.address)
    records = records.option("subscribe", topic).option("startingOffsets", "earliest")
    parsed = records.load().selectExpr(
        f"from_json(cast(value as string), '{schema}') AS r", "partition", "offset", "timestamp"
    )
    return parsed.selectExpr(*columns).toArrow()


def read_events(folder: Path) -> list[Event]:
    """Read back the input records of a run."""
    return [Event(*row) for row in _rows(folder / "events.parquet")]


def read_outputs(folder: Path) -> list[Output]:
    """Read back the output records of a run."""
    return [Output(*row) for row in _rows(folder / "outputs.parquet")]


def _rows(file: Path) -> Sequence[tuple[Any, ...]]:
    import pyarrow.parquet as pq

    columns = pq.read_table(file).columns
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def read_batches(printed: Sequence[Any]) -> list[Batch]:
    """Read back the batches that the measured process printed."""
    return [
        Batch(started, ms, {int(partition): end for partition, end in ends.items()})
        for started, ms, ends in printed
    ]


def main() -> None:
    """Read a task from standard input, run it, print its batches as the last line."""
    from holdfast.config.backend import TRACK_ROWS_KEY

    task = Task(**json.load(sys.stdin))
    # Spark's own benchmark counts no rows of the state either.
    settings = {"spark.jars": connector(), TRACK_ROWS_KEY: "false"}
    with local_session(f"latency-{task.side}", Path(task.folder) / "home", settings) as spark:
        batches = run(spark, task)
    sys.stdout.write(json.dumps(batches) + "\n")


if __name__ == "__main__":
    main()
