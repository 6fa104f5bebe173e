"""SQL over a view of a stream that has a watermark."""
spark.readStream.table("events").withWatermark("ts", "1 hour").createOrReplaceTempView("events_now")
counts = spark.sql("select window(ts, '1 hour') as w, count(*) as n from events_now group by window(ts, '1 hour')")
counts.writeStream.outputMode("append").option("checkpointLocation", "/chk/counts").toTable("counts")
