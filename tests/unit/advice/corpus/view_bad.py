"""SQL over a view of a stream that has no watermark."""
spark.readStream.table("events").createOrReplaceTempView("events_now")
counts = spark.sql("select customer, count(*) as n from events_now group by customer")
counts.writeStream.outputMode("complete").option("checkpointLocation", "/chk/counts").toTable("counts")
