"""A guarded query with state in real-time mode, from Kafka to Kafka.

The first argument is JSON: the broker, topics, a folder, the checkpoint, the operator, and the port for
metrics. Each file `in/N.json` of the folder, a list of pairs of a key and a value, is written to the topic.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import holdfast as hf


def feed(spark: Any, asked: dict[str, Any]) -> None:
    """Write each file once, in order; the directory `fed` has those that were written."""
    folder, number, pause = Path(asked["folder"]), 0, threading.Event()
    while True:
        file, fed = folder / "in" / f"{number}.json", folder / "fed" / str(number)
        if not file.exists():
            pause.wait(0.05)
            continue
        if not fed.exists():
            # A task of its own: a query in real-time mode holds the slots of all its stages.
            rows = spark.createDataFrame(json.loads(file.read_text()), "key string, value string").coalesce(1)
            to = rows.write.format("kafka").option("kafka.bootstrap.servers", asked["address"])
            to.option("topic", asked["topic"]).save()
            fed.touch()
        number += 1


def main(asked: dict[str, Any]) -> int:
    folder = Path(asked["folder"])
    (folder / "fed").mkdir(exist_ok=True)
    spark = hf.session("real-time", home=folder / "home", master="local[8]", conf=asked["conf"])
    threading.Thread(target=feed, args=(spark, asked), daemon=True).start()
    pause = threading.Event()
    while not (folder / "fed" / "0").exists():  # the topic is made by its first record
        pause.wait(0.05)
    kafka = {"kafka.bootstrap.servers": asked["address"]}
    read = spark.readStream.format("kafka").options(**kafka, subscribe=asked["topic"])
    stream = read.option("startingOffsets", "earliest").load()
    seen = stream.selectExpr("cast(key as string) who", "cast(value as string) what")
    if asked["operator"] == "aggregate":
        found = seen.groupBy("who").count().selectExpr("who as key", "cast(count as string) as value")
    else:
        found = seen.dropDuplicates(["who", "what"]).selectExpr("who as key", "what as value")
    writer: Any = found.writeStream.format("kafka").options(**kafka, topic=asked["output"])
    writer = writer.outputMode("update").queryName("live").option("checkpointLocation", asked["checkpoint"])

    def on_alert(event: hf.AlertEvent) -> None:
        with (folder / "alerts").open("a") as file:
            file.write(f"{event.alert.rule} {event.kind}\n")

    guard = hf.guard(
        writer.trigger(realTime="5 seconds"),
        home=folder / "home",
        grace="1m",
        alerts=hf.Alerts(state_size="10 B"),
        on_alert=on_alert,
        port=asked["port"],
    )
    return guard.run()


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
