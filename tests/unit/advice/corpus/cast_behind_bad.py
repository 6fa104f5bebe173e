"""The time is cast behind the watermark: once in the column, once in the window."""
from pyspark.sql import functions as F

rows = spark.readStream.table("readings").withWatermark("at", "1 hour")
shifted = rows.withColumn("at", F.date_trunc("minute", "at"))
minutes = shifted.groupBy(F.window("at", "1 minute"), "sensor").agg(F.avg("value"))
minutes.writeStream.option("checkpointLocation", "hdfs:/chk/minutes").toTable("minutes")
hours = rows.groupBy(F.window(F.col("at").cast("timestamp"), "1 hour"), "sensor").agg(F.avg("value"))
hours.writeStream.option("checkpointLocation", "hdfs:/chk/hours").toTable("hours")
