"""Impressions with their clicks, by id alone."""
impressions = spark.readStream.table("impressions").withWatermark("shown_at", "1 hour")
clicks = spark.readStream.table("clicks").withWatermark("clicked_at", "1 hour")
met = impressions.join(clicks, on=["ad_id"], how="inner")
met.writeStream.option("checkpointLocation", "/chk/met").toTable("met")
