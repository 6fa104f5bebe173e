"""Whole rows that are equal."""
payments = spark.readStream.table("payments").withWatermark("paid_at", "1 hour")
payments.dropDuplicates().writeStream.option("checkpointLocation", "/chk/p").toTable("p")
