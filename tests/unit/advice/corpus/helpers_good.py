"""The same through functions, one of which declares the watermark."""
from pyspark.sql import functions as F


def read(spark, topic):
    return spark.readStream.format("kafka").option("subscribe", topic).load()


def parse(frame):
    return frame.select(F.col("key").cast("string").alias("device"), F.col("timestamp").alias("ts"))


def timed(frame, delay="10 minutes"):
    return frame.withWatermark("ts", delay)


def per_minute(frame):
    return frame.groupBy(F.window("ts", "1 minute"), "device").count()


def main(spark):
    counts = per_minute(parse(read(spark, "devices")).transform(timed))
    counts.writeStream.format("delta").option("checkpointLocation", "/chk/devices").toTable("per_minute")
