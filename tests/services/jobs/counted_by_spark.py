"""Visits and spending of each customer, by whatever PySpark runs this; it needs nothing else."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn


def main(asked: dict[str, Any]) -> None:
    """Work off the files that are there, as the JSON in the first argument says."""
    builder = SparkSession.builder.master("local[2]")
    for key, value in asked["conf"].items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()

    def write(rows: DataFrame, batch_id: int) -> None:
        found = [json.dumps([row["customer"], row["visits"], row["spend"]]) for row in rows.collect()]
        Path(asked["output"], f"{batch_id}.jsonl").write_text("\n".join(sorted(found)))

    schema = "customer string, amount long"
    events = spark.readStream.schema(schema).option("maxFilesPerTrigger", "1").json(asked["input"])
    counts = events.groupBy("customer").agg(fn.count("*").alias("visits"), fn.sum("amount").alias("spend"))
    writer = counts.writeStream.outputMode("update").foreachBatch(write)
    query = writer.option("checkpointLocation", asked["checkpoint"]).trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
