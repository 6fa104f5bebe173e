"""A plain PySpark query that counts visits, without Holdfast: `python docs/examples/plain_query.py`."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import SparkSession

DAYS = (("ann", "bob", "cid"), ("ann", "bob"), ("ann", "dee"))


def main() -> None:
    """Write three days of visits, and count them in three batches."""
    arrivals = Path("arrivals")
    arrivals.mkdir()
    for day, customers in enumerate(DAYS):
        lines = [json.dumps({"customer": customer}) for customer in customers]
        (arrivals / f"{day}.json").write_text("\n".join(lines))

    spark = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    visits = spark.readStream.schema("customer string").option("maxFilesPerTrigger", "1").json("arrivals")
    counts = visits.groupBy("customer").count()
    writer = counts.writeStream.outputMode("update").format("noop")
    query = writer.option("checkpointLocation", "checkpoints/visits").trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
