"""The same through functions: the frame has no watermark where it is aggregated."""
from pyspark.sql import functions as F


def read(spark, topic):
    return spark.readStream.format("kafka").option("subscribe", topic).load()


def parse(frame):
    return frame.select(F.col("key").cast("string").alias("device"), F.col("timestamp").alias("ts"))


def per_minute(frame):
    return frame.groupBy(F.window("ts", "1 minute"), "device").count()


def main(spark):
    counts = per_minute(parse(read(spark, "devices")))
    counts.writeStream.format("delta").option("checkpointLocation", "/chk/devices").toTable("per_minute")
