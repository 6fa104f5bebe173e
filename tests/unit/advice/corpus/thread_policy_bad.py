"""Two streams, one of which is silent at night; so the policy was changed, and its rows are dropped by day."""
spark.conf.set("spark.sql.streaming.multipleWatermarkPolicy", "max")
doors = spark.readStream.table("doors").withWatermark("opened_at", "10 minutes")
badges = spark.readStream.table("badges").withWatermark("shown_at", "10 minutes")
doors.join(badges, (doors.door == badges.door) & (doors.opened_at >= badges.shown_at) & (doors.opened_at < badges.until)).writeStream.option(
    "checkpointLocation", "/chk/doors"
).toTable("opened")
