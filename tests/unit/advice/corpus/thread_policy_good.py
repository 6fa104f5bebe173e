"""The slowest stream decides, as it is by default."""
spark.conf.set("spark.sql.streaming.multipleWatermarkPolicy", "min")
doors = spark.readStream.table("doors").withWatermark("opened_at", "10 minutes")
badges = spark.readStream.table("badges")
visits = doors.union(spark.readStream.table("gates").withWatermark("opened_at", "10 minutes"))
visits.writeStream.option("checkpointLocation", "/chk/doors").toTable("opened")
