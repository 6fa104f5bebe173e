"""A watermark on one column, windows over another."""
from pyspark.sql import functions as F

logs = (
    spark.readStream.table("logs")
    .withWatermark("ingested_at", "15 minutes")
    .withColumn("event_time", F.to_timestamp("raw_time"))
)
errors = logs.where("level = 'ERROR'").groupBy(F.window(F.col("event_time"), "5 minutes"), "service").count()
errors.writeStream.option("checkpointLocation", "/chk/errors").outputMode("update").toTable("errors")
