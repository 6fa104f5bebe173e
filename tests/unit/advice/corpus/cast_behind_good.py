"""The time is cast first, and named by its name behind the watermark."""
from pyspark.sql import functions as F

rows = spark.readStream.table("readings").withColumn("at", F.date_trunc("minute", "at"))
timed = rows.withWatermark("at", "1 hour").withColumnRenamed("at", "minute")
minutes = timed.groupBy(F.window("minute", "1 minute"), "sensor").agg(F.avg("value"))
minutes.writeStream.option("checkpointLocation", "hdfs:/chk/minutes").toTable("minutes")
