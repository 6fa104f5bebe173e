"""Impressions with a table of ads: no state."""
ads = spark.read.table("ads")
impressions = spark.readStream.table("impressions").withWatermark("shown_at", "1 hour")
met = impressions.join(ads, on=["ad_id"], how="left")
met.writeStream.option("checkpointLocation", "/chk/met").toTable("met")
