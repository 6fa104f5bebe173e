"""The watermark is on the column of the windows."""
from pyspark.sql import functions as F

logs = (
    spark.readStream.table("logs")
    .withColumn("event_time", F.to_timestamp("raw_time"))
    .withWatermark("event_time", "15 minutes")
)
errors = logs.where("level = 'ERROR'").groupBy(F.window(F.col("event_time"), "5 minutes"), "service").count()
errors.writeStream.option("checkpointLocation", "/chk/errors").outputMode("update").toTable("errors")
