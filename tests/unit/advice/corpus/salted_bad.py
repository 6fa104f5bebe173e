"""A salt against a hot key, and no second aggregate."""
from pyspark.sql import functions as F

sales = spark.readStream.table("sales").withWatermark("ts", "1 hour")
salted = sales.withColumn("salt", F.floor(F.rand() * 16))
totals = salted.groupBy(F.window("ts", "1 hour"), "shop", "salt").agg(F.sum("cents").alias("cents"))
totals.drop("salt").writeStream.option("checkpointLocation", "/chk/totals").toTable("totals")
