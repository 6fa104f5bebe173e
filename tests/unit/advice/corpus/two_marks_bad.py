"""Two watermarks on one stream."""
from pyspark.sql import functions as F

events = spark.readStream.table("events").withWatermark("created_at", "1 hour").withWatermark("received_at", "1 hour")
events.groupBy(F.window("received_at", "1 hour")).count().writeStream.option("checkpointLocation", "/chk/e").toTable("e")
