"""An example job for the image: count numbers by their last digit, in a SQLite table."""

from pyspark.sql import functions as F  # noqa: N812

import holdfast as hf


@hf.job(name="counts", checkpoint="/var/lib/holdfast/checkpoints/counts", trigger=hf.every("1 second"))
def counts(spark, rows="5", table="/var/lib/holdfast/counts.db"):
    """Count ascending numbers, `rows` per second."""
    numbers = spark.readStream.format("rate").option("rowsPerSecond", rows).load()
    counted = numbers.groupBy((F.col("value") % 10).alias("digit")).count()
    return hf.sink(counted, mode="update").upsert("counts", keys=["digit"], ledger=table)
