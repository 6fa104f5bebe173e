"""A query that writes files on other storage in two batches; prints it as JSON.

The only argument is JSON: the table, the checkpoint, a folder for the input, settings.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

given = json.loads(sys.argv[1])
folder = Path(given["folder"])
session = SparkSession.builder.master("local[1]").appName("table")
for key, value in given["conf"].items():
    session.config(key, value)
spark = session.getOrCreate()


def run(name: str, *numbers: int) -> None:
    """Run a batch with these numbers."""
    (folder / name).write_text("".join(f'{{"number": {number}, "day": "a b"}}\n' for number in numbers))
    lines = spark.readStream.schema("number INT, day STRING").json(str(folder))
    writer = lines.writeStream.format("parquet").partitionBy("day").option("path", given["table"])
    query = writer.option("checkpointLocation", given["checkpoint"]).trigger(availableNow=True).start()
    query.awaitTermination()


folder.mkdir()
run("1.json", 1, 2)
run("2.json", 3)
sys.stdout.write(json.dumps("done") + "\n")
spark.stop()
