"""Queries that read and write a topic, and what they say when it or its broker is gone; prints it as JSON.

The first argument is JSON: the broker, its process, a topic, a folder, settings.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import holdfast as hf
from holdfast.engine.queries.watch import await_end, failure_text
from holdfast.errors import HoldfastError
from holdfast.jobs import failures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from holdfast.model import Failure

# What a client waits for by default takes minutes.
IMPATIENT = {
    "kafka.max.block.ms": "2000",
    "kafka.delivery.timeout.ms": "3000",
    "kafka.request.timeout.ms": "2000",
    "kafka.linger.ms": "0",
    "kafka.default.api.timeout.ms": "3000",
}


class Topics:
    """Topics of a broker, by the client that Spark brings along."""

    def __init__(self, spark: SparkSession, address: str, folder: Path) -> None:
        self.spark = spark
        self.address = address
        self.folder = folder
        jvm: Any = spark._jvm
        settings = jvm.java.util.HashMap()
        settings.put("bootstrap.servers", address)
        self._jvm = jvm
        self._admin = jvm.org.apache.kafka.clients.admin.Admin.create(settings)

    def make(self, topic: str) -> None:
        made = self._jvm.org.apache.kafka.clients.admin.NewTopic(topic, 1, 1)
        self._admin.createTopics(self._jvm.java.util.List.of(made)).all().get()

    def remove(self, topic: str) -> None:
        self._admin.deleteTopics(self._jvm.java.util.List.of(topic)).all().get()
        while self._admin.listTopics().names().get().contains(topic):
            pass

    def write(self, topic: str, *values: str) -> None:
        rows = self.spark.createDataFrame([(value,) for value in values], "value string").coalesce(1)
        writer = rows.write.format("kafka").option("kafka.bootstrap.servers", self.address)
        writer.option("topic", topic).save()

    def read(self, topic: str) -> DataFrame:
        reader = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.address)
        reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
        reader = reader.option("kafka.default.api.timeout.ms", "3000")
        return reader.option("kafka.request.timeout.ms", "2000").load()

    def start(self, frame: DataFrame, name: str) -> StreamingQuery:
        writer = frame.writeStream.format("noop").trigger(availableNow=True)
        return writer.option("checkpointLocation", str(self.folder / name)).start()


def told(failure: Failure) -> dict[str, Any]:
    return {"cause": failure.cause, "error": failure.error_class, "line": failure.line}


def failed(make: Callable[[], StreamingQuery]) -> dict[str, Any]:
    """What is said of a query that fails."""
    try:
        query = make()
    except Exception as error:
        return told(failures.from_exception(error, str(error), label="start"))
    await_end(query)
    text = failure_text(query)
    return told(failures.from_text(text, label="query")) if text else {"line": "nothing"}


def failed_sink(sink: hf.Sink, place: Path) -> dict[str, Any]:
    """What is said of a sink that fails."""
    try:
        await_end(sink.start(checkpoint=str(place), trigger=hf.available_now()))
    except HoldfastError as error:
        return told(failures.from_exception(error, "", label="start"))
    if sink.error is None:
        return {"line": "nothing"}
    return told(failures.from_exception(sink.error, str(sink.error), label="batch"))


def main(asked: dict[str, Any]) -> None:
    folder, topic = Path(asked["folder"]), asked["topic"]
    spark = hf.session("bad", home=folder / "home", master="local[2]", conf=asked["conf"])
    spark.sparkContext.setLogLevel("OFF")
    topics = Topics(spark, asked["address"], folder)
    found: dict[str, Any] = {}
    found["no_topic_to_read"] = failed(lambda: topics.start(topics.read("nowhere"), "nowhere"))

    topics.make(topic)
    topics.write(topic, "a", "b", "c")
    topics.start(topics.read(topic), "recreated").awaitTermination()
    topics.remove(topic)
    topics.make(topic)
    topics.write(topic, "d")
    found["topic_recreated"] = failed(lambda: topics.start(topics.read(topic), "recreated"))
    topics.write(topic, "e", "f", "g")

    out = f"{topic}-out"
    topics.make(out)
    large = topics.read(topic).selectExpr("repeat('x', 2000000) value")
    found["record_too_large"] = failed_sink(hf.sink(large).kafka(topics.address, out), folder / "large")

    # The first batch goes out; the broker dies before the second one.
    orders = folder / "orders"
    orders.mkdir()
    (orders / "0.json").write_text('{"value": "a"}')
    (orders / "1.json").write_text('{"value": "b"}')
    stream = spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).json(str(orders))

    def kill_in_the_second(batches: Any) -> Any:
        for batch in batches:
            if "b" in batch.column("value").to_pylist():
                os.kill(asked["pid"], signal.SIGKILL)
            yield batch

    killed = stream.mapInArrow(kill_in_the_second, "value string")
    to = hf.sink(killed).kafka(topics.address, out, **IMPATIENT)
    found["broker_gone_in_a_batch"] = failed_sink(to, folder / "gone")
    again = hf.sink(stream).kafka(topics.address, out, **IMPATIENT)
    found["broker_gone_at_start"] = failed_sink(again, folder / "gone")
    found["broker_gone_to_read"] = failed(lambda: topics.start(topics.read(topic), "unread"))
    print(json.dumps(found))  # noqa: T201 - the answer
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
