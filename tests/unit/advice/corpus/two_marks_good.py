"""One watermark, and an aggregate of aggregates."""
from pyspark.sql import functions as F

events = spark.readStream.table("events").withWatermark("received_at", "1 hour")
minutes = events.groupBy(F.window("received_at", "1 minute"), "shop").count()
hours = minutes.groupBy(F.window(F.window_time("window"), "1 hour"), "shop").agg(F.max("count"))
hours.writeStream.option("checkpointLocation", "/chk/e").toTable("e")
