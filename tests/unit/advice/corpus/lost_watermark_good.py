"""A watermark that is kept."""
from pyspark.sql import functions as F

trips = spark.readStream.table("trips")
trips = trips.withWatermark("ended_at", "1 hour")
hourly = trips.groupBy(F.window("ended_at", "1 hour"), "zone").agg(F.sum("fare"))
hourly.writeStream.option("checkpointLocation", "/chk/hourly").outputMode("update").toTable("hourly")
