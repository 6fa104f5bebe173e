"""Either source, no watermark on either way."""
import sys

from pyspark.sql import functions as F


def main(spark, live):
    if live:
        events = spark.readStream.format("kafka").option("subscribe", "events").load()
    else:
        events = spark.readStream.schema("timestamp timestamp, value string").json("events")
    counts = events.groupBy(F.window("timestamp", "1 minute")).count()
    counts.writeStream.option("checkpointLocation", "/chk/counts").toTable("counts")


main(spark, "--live" in sys.argv)
