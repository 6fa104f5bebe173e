"""Counts from Kafka, and goes on from checkpoints whose offsets were moved; prints what each run has counted.

The first argument is JSON: the broker, the topics, rows by partition before and after, a folder, settings.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import holdfast as hf
from holdfast import savepoints
from holdfast.changes.offsets.offsets_api import move_offsets, offsets
from holdfast.changes.offsets.position_changes import (
    RenameTopic,
    SkipRecords,
    SyncPoint,
    ToOffset,
    Translate,
    listed_offsets,
)


class Counting:
    """The query, with the same code for each topic."""

    def __init__(self, spark: SparkSession, asked: dict[str, Any]) -> None:
        self.spark = spark
        self.address = asked["address"]
        self.folder = Path(asked["folder"])

    def write(self, topic: str, rows: dict[str, list[str]]) -> None:
        for partition, values in rows.items():
            for value in values:  # one after the other: their order is their offsets
                frame = self.spark.createDataFrame(
                    [(value, int(partition))], "value string, partition int"
                ).coalesce(1)
                frame.write.format("kafka").option("kafka.bootstrap.servers", self.address).option(
                    "topic", topic
                ).save()

    def run(self, topic: str, checkpoint: str) -> dict[str, int]:
        stream = (
            self.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.address)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
        )
        counts: dict[str, int] = {}

        def keep(rows: Any, _: int) -> None:
            counts.clear()
            counts.update({row["value"]: row["count"] for row in rows.collect()})

        counted = stream.selectExpr("CAST(value AS STRING) AS value").groupBy("value").count()
        writer = counted.writeStream.outputMode("complete").foreachBatch(keep)
        query = writer.option("checkpointLocation", str(self.folder / checkpoint)).trigger(availableNow=True)
        query.start().awaitTermination()
        return counts


def main(asked: dict[str, Any]) -> None:
    spark = hf.session("moved", home=Path(asked["folder"]) / "home", master="local[2]", conf=asked["conf"])
    job = Counting(spark, asked)
    topic, other, cluster = asked["topics"]
    folder = Path(asked["folder"])
    job.write(topic, asked["before"])
    found: dict[str, Any] = {"first": job.run(topic, "ck")}
    saved = savepoints.take(folder / "ck", folder / "sp", home=folder / "home").uri
    found["offsets"] = {str(at.partition): at.next for at in offsets(saved).sources if at.topic == topic}
    back = listed_offsets(f"{topic}:0:1\n", "-")
    move_offsets(saved, folder / "again", changes=back)
    found["again"] = job.run(topic, "again")
    less = [ToOffset(json.dumps({topic: {"1": 1}}))]
    found["less"] = move_offsets(saved, folder / "less", changes=less).plan.repeated
    found["anew"] = job.run(topic, "less")
    job.write(topic, asked["after"])
    move_offsets(saved, folder / "past", changes=[SkipRecords(topic, 0, 1)])
    found["past"] = job.run(topic, "past")
    job.write(other, asked["elsewhere"])
    move_offsets(saved, folder / "renamed", changes=[RenameTopic(topic, other)])
    found["renamed"] = job.run(other, "renamed")
    job.write(cluster, asked["cluster"])
    points = tuple(SyncPoint(topic, at, old, cluster, to, new) for at, old, to, new in asked["points"])
    move_offsets(saved, folder / "translated", changes=[Translate(points)])
    found["translated"] = job.run(cluster, "translated")
    print(json.dumps(found))  # noqa: T201 - the answer
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
