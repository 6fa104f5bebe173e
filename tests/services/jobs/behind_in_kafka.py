"""Reads a topic in two runs, the first of which reads half of it; prints how far each is behind.

The first argument is JSON: the broker, the topic, how many records each partition has, a folder, settings.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F  # noqa: N812

import holdfast as hf


def main(asked: dict[str, Any]) -> None:
    folder = Path(asked["folder"])
    spark = hf.session("behind", home=folder / "home", master="local[2]", conf=asked["conf"])
    for partition, count in asked["records"].items():
        rows = spark.range(count).select(
            F.col("id").cast("string").alias("value"), F.lit(int(partition)).alias("partition")
        )
        to = rows.coalesce(1).write.format("kafka").option("kafka.bootstrap.servers", asked["address"])
        to.option("topic", asked["topic"]).save()
    stream = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", asked["address"])
        .option("subscribe", asked["topic"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", sum(asked["records"].values()) // 2)
        .load()
    )
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(folder / "ck"))
    found: dict[str, Any] = {}
    for run, trigger in (("half", {"processingTime": "1 hour"}), ("all", {"availableNow": True})):
        query = writer.trigger(**trigger).start()
        try:
            if run == "all":
                query.awaitTermination()
            while not query.lastProgress:
                time.sleep(0.05)
            with hf.watch(query, home=folder / "home") as watch:
                found[run] = {
                    "/".join((each.metric, *each.labels[2:])): each.value
                    for each in watch.metrics()
                    if "lag_records" in each.metric
                }
                found[f"{run}_waits"] = max(
                    each.value for each in watch.metrics() if each.metric == "holdfast_lag_seconds"
                )
        finally:
            query.stop()
    print(json.dumps(found))  # noqa: T201 - the answer
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
