"""SQL with a query inside of it, over a stream that has no watermark."""
spark.readStream.table("orders").createOrReplaceTempView("orders_now")
totals = spark.sql("select customer, sum(cents) as cents from (select * from orders_now where paid) group by customer")
totals.writeStream.option("checkpointLocation", "hdfs:/chk/totals").outputMode("update").toTable("totals")
