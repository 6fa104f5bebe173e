"""Orders with their payments; two watermarks are a note, since either may hold back both."""
from pyspark.sql.functions import expr

orders = spark.readStream.table("orders").withWatermark("ordered_at", "2 hours")
payments = spark.readStream.table("payments").withWatermark("paid_at", "2 hours")
paid = orders.join(
    payments,
    expr("order_id = payment_order and paid_at >= ordered_at and paid_at <= ordered_at + interval 1 hour"),
    "leftOuter",
)
paid.writeStream.option("checkpointLocation", "/chk/paid").toTable("paid")
