"""The watermark is declared before the aggregate."""
from pyspark.sql import functions as F

events = spark.readStream.table("events").withWatermark("ts", "1 hour")
counts = events.groupBy(F.window("ts", "1 hour").alias("hour"), "kind").count()
counts.withColumn("ended", F.col("hour.end")).writeStream.option("checkpointLocation", "/chk/c").toTable("c")
