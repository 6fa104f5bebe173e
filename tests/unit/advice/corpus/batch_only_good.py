"""A batch job: nothing of it keeps state."""
from pyspark.sql import functions as F

orders = spark.read.table("orders")
payments = spark.read.table("payments")
orders.dropDuplicates(["order_id"]).join(payments, "order_id").groupBy("customer").agg(F.collect_list("item")).write.saveAsTable("b")
