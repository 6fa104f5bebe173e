"""Unique events by id within the watermark."""
events = spark.readStream.format("kafka").option("subscribe", "events").load().selectExpr("cast(key as string) as id", "timestamp")
unique = events.withWatermark("timestamp", "24 hours").dropDuplicatesWithinWatermark(["id"])
unique.writeStream.format("parquet").option("checkpointLocation", "/chk/u").option("path", "/tables/u").start()
