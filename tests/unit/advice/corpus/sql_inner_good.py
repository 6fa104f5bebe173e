"""SQL with a query inside of it, with a window on the stream's watermark."""
spark.readStream.table("orders").withWatermark("at", "1 hour").createOrReplaceTempView("orders_now")
totals = spark.sql(
    "select window(at, '1 day') as day, customer, sum(cents) as cents from (select * from orders_now where paid)"
    " group by 1, 2"
)
totals.writeStream.option("checkpointLocation", "hdfs:/chk/totals").outputMode("update").toTable("totals")
