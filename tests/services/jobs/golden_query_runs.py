"""Runs queries of `golden_queries` by whatever PySpark runs this; it needs nothing else.

The first argument is JSON: settings of the session, and runs. A run is a query by its name, its settings, its
input, its checkpoint, and a folder for what each batch puts out.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "golden"))

from golden_queries import with_sink_name
from make_plain import QUERIES
from pyspark.sql import DataFrame, SparkSession


def run(spark: SparkSession, asked: dict[str, Any]) -> None:
    """Work off the files that are there."""
    for key, value in asked["conf"].items():
        spark.conf.set(key, value)
    frame, mode = QUERIES[asked["query"]]

    def write(rows: DataFrame, batch_id: int) -> None:
        found = sorted(json.dumps(row.asDict(recursive=True), default=str) for row in rows.collect())
        Path(asked["output"], f"{batch_id}.jsonl").write_text("\n".join(found))

    writer = frame(spark, Path(asked["input"])).writeStream.outputMode(mode).foreachBatch(write)
    writer = with_sink_name(spark, writer.option("checkpointLocation", asked["checkpoint"]))
    writer.trigger(availableNow=True).start().awaitTermination()


def main(asked: dict[str, Any]) -> None:
    builder = SparkSession.builder.master("local[2]")
    for key, value in asked["conf"].items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    for one in asked["runs"]:
        run(spark, one)
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
