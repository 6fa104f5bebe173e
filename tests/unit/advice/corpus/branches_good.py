"""A watermark on one way only: it cannot be told from here that there is none."""
import sys

from pyspark.sql import functions as F


def main(spark, late):
    events = spark.readStream.format("kafka").option("subscribe", "events").load()
    if late:
        events = events.withWatermark("timestamp", late)
    counts = events.groupBy(F.window("timestamp", "1 minute")).count()
    counts.writeStream.option("checkpointLocation", "/chk/counts").toTable("counts")


main(spark, sys.argv[1] if len(sys.argv) > 1 else None)
