"""Orders with their payments."""
from pyspark.sql.functions import expr

orders = spark.readStream.table("orders").withWatermark("ordered_at", "2 hours")
payments = spark.readStream.table("payments")
paid = orders.join(payments, expr("order_id = payment_order and paid_at >= ordered_at"))
paid.writeStream.option("checkpointLocation", "/chk/paid").toTable("paid")
