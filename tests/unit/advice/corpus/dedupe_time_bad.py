"""Repeats whose time differs are not found."""
payments = spark.readStream.table("payments").withWatermark("paid_at", "1 hour")
payments.dropDuplicates(["payment_id", "paid_at"]).writeStream.option("checkpointLocation", "/chk/p").toTable("p")
