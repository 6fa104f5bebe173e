"""Reads topics and commits where to consumer groups; prints what the groups have.

The first argument is JSON: the broker, two topics, how many records each partition has, a folder, settings.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F  # noqa: N812

import holdfast as hf

JOB = """
import holdfast as hf

@hf.job(
    name="both", checkpoint={checkpoint!r}, trigger=hf.available_now(), conf={conf!r}, consumer_group="job",
    master="local[2]",
)
def both(spark):
    def read(topic):
        stream = spark.readStream.format("kafka").option("kafka.bootstrap.servers", {address!r})
        return stream.option("subscribe", topic).option("startingOffsets", "earliest").load()

    first, second = {topics!r}
    return [
        hf.sink(read(first), name="first").foreach_batch(lambda batch, _: batch.count()),
        hf.sink(read(second), name="second").foreach_batch(lambda batch, _: batch.count()),
    ]
"""


def main(asked: dict[str, Any]) -> None:
    folder = Path(asked["folder"])
    spark = hf.session("groups", home=folder / "home", master="local[2]", conf=asked["conf"])
    for topic in asked["topics"]:
        for partition, count in asked["records"].items():
            rows = spark.range(count).select(
                F.col("id").cast("string").alias("value"), F.lit(int(partition)).alias("partition")
            )
            to = rows.coalesce(1).write.format("kafka").option("kafka.bootstrap.servers", asked["address"])
            to.option("topic", topic).save()
    stream = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", asked["address"])
        .option("subscribe", asked["topics"][0])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", sum(asked["records"].values()) // 2)
        .load()
    )
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(folder / "ck"))
    found: dict[str, Any] = {}
    watched = io.StringIO()
    for run, trigger in (("half", {"processingTime": "1 hour"}), ("all", {"availableNow": True})):
        query = writer.trigger(**trigger).start()
        try:
            with (
                contextlib.redirect_stderr(watched),
                hf.watch(query, home=folder / "home", consumer_group="watched"),
            ):
                if run == "all":
                    query.awaitTermination()
                while not query.lastProgress:
                    time.sleep(0.05)
        finally:
            query.stop()
        found[run] = offsets(spark, asked["address"], "watched")
    found["watched"] = watched.getvalue()

    file = folder / "both.py"
    file.write_text(JOB.format(checkpoint=str(folder / "job"), **asked))
    ran = subprocess.run(
        [str(Path(sys.executable).parent / "holdfast"), "run", str(file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    found["said"] = ran.stdout + ran.stderr
    found["job"] = offsets(spark, asked["address"], "job")

    writer = stream.writeStream.format("noop").option("checkpointLocation", str(folder / "guarded"))
    guard = hf.guard(
        writer.trigger(availableNow=True), name="guarded", home=folder / "home", consumer_group="guarded"
    )
    found["guarded_code"] = guard.run()
    found["guarded"] = offsets(spark, asked["address"], "guarded")

    said = io.StringIO()
    with consumer(spark, asked["address"], "taken", asked["topics"][0]), contextlib.redirect_stderr(said):
        writer = stream.writeStream.format("noop").option("checkpointLocation", str(folder / "other"))
        query = writer.trigger(availableNow=True).start()
        with hf.watch(query, home=folder / "home", consumer_group="taken"):
            query.awaitTermination()
        found["rows"] = sum(progress.numInputRows for progress in query.recentProgress)
    found["told"] = said.getvalue()
    found["taken"] = offsets(spark, asked["address"], "taken")
    print(json.dumps(found))  # noqa: T201 - the answer
    spark.stop()


def offsets(spark: Any, address: str, group: str) -> dict[str, int]:
    """What Kafka's own client says of a group."""
    jvm = spark._jvm
    admin = jvm.org.apache.kafka.clients.admin.Admin.create(properties(jvm, address))
    try:
        there = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
        return {f"{place.topic()}/{place.partition()}": there[place].offset() for place in there}
    finally:
        admin.close()


@contextlib.contextmanager
def consumer(spark: Any, address: str, group: str, topic: str) -> Iterator[None]:
    """A consumer of a group that has got its partitions."""
    jvm = spark._jvm
    settings = properties(jvm, address)
    text = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
    for name, value in {
        "group.id": group,
        "key.deserializer": text,
        "value.deserializer": text,
        "enable.auto.commit": "false",
        "max.poll.interval.ms": "600000",
    }.items():
        settings.setProperty(name, value)
    reader = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(settings)
    try:
        reader.subscribe(jvm.java.util.List.of(topic))
        while reader.assignment().isEmpty():
            reader.poll(jvm.java.time.Duration.ofMillis(200))
        yield
    finally:
        reader.close()


def properties(jvm: Any, address: str) -> Any:
    settings = jvm.java.util.Properties()
    settings.setProperty("bootstrap.servers", address)
    return settings


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
