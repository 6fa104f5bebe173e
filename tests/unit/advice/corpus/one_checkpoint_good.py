"""Two queries with their own checkpoints, and one of two that is started."""
import sys

CHECKPOINTS = "hdfs:/checkpoints"

orders = spark.readStream.table("orders")
payments = spark.readStream.table("payments")
orders.writeStream.option("checkpointLocation", f"{CHECKPOINTS}/orders").toTable("orders_copy")
if "--all" in sys.argv:
    payments.writeStream.option("checkpointLocation", CHECKPOINTS + "/payments").toTable("payments_copy")
else:
    payments.limit(10).writeStream.option("checkpointLocation", CHECKPOINTS + "/payments").toTable("payments_copy")
