"""The watermark is declared behind the aggregate."""
from pyspark.sql import functions as F

counts = spark.readStream.table("events").groupBy(F.window("ts", "1 hour").alias("hour"), "kind").count()
counts = counts.withColumn("ended", F.col("hour.end")).withWatermark("ended", "1 hour")
counts.writeStream.option("checkpointLocation", "/chk/c").toTable("c")
