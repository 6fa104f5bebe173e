"""An example program for the image, started by a platform: the same counts, printed, with `hf.guard`.

COUNTS is the directory or address of the checkpoint and the savepoints. With `--available-now` the program
processes the available data and ends.
"""

import logging
import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import holdfast as hf

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
place = os.environ["COUNTS"]
spark = SparkSession.builder.appName("counts").getOrCreate()
numbers = spark.readStream.format("rate").option("rowsPerSecond", "5").load()
counted = numbers.groupBy((F.col("value") % 10).alias("digit")).count()
writer = (
    counted.writeStream.queryName("counts")
    .outputMode("update")
    .format("console")
    .option("checkpointLocation", f"{place}/checkpoint")
)
if "--available-now" in sys.argv:
    writer = writer.trigger(availableNow=True)
else:
    writer = writer.trigger(processingTime="1 second")
guard = hf.guard(
    writer,
    grace="40s",  # shorter than the pod's terminationGracePeriodSeconds
    savepoints=f"{place}/savepoints",
    savepoint_every="1h",
    port=9400,
    host="0.0.0.0",  # noqa: S104 - Prometheus scrapes from a different pod, which the NetworkPolicy admits
)
sys.exit(guard.run())
