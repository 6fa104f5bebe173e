"""Two queries, one checkpoint: the second was copied from the first."""
CHECKPOINT = "hdfs:/checkpoints/shop"

orders = spark.readStream.table("orders")
payments = spark.readStream.table("payments")
orders.writeStream.option("checkpointLocation", CHECKPOINT).toTable("orders_copy")
payments.writeStream.option("checkpointLocation", CHECKPOINT).toTable("payments_copy")
