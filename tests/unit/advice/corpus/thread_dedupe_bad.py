"""Unique events by id with a watermark, as many threads have it: the watermark does nothing."""
events = spark.readStream.format("kafka").option("subscribe", "events").load().selectExpr("cast(key as string) as id", "timestamp")
unique = events.withWatermark("timestamp", "24 hours").dropDuplicates(["id"])
unique.writeStream.format("parquet").option("checkpointLocation", "/chk/u").option("path", "/tables/u").start()
