"""A salt made from a column, and the parts added up."""
from pyspark.sql import functions as F

sales = spark.readStream.table("sales").withWatermark("ts", "1 hour")
salted = sales.withColumn("salt", F.pmod(F.xxhash64("sale_id"), F.lit(16)))
parts = salted.groupBy(F.window("ts", "1 hour"), "shop", "salt").agg(F.sum("cents").alias("cents"))
totals = parts.groupBy("window", "shop").agg(F.sum("cents").alias("cents"))
totals.writeStream.option("checkpointLocation", "/chk/totals").toTable("totals")
