"""A batch job and a stream in one file; only the stream keeps state."""
from pyspark.sql import functions as F

old = spark.read.table("orders").dropDuplicates(["order_id"]).groupBy("customer").agg(F.collect_list("item"))
old.write.mode("overwrite").saveAsTable("baskets")
new = spark.readStream.table("orders").distinct()
new.writeStream.option("checkpointLocation", "/chk/new").toTable("new_orders")
