"""Comments that suppress nothing."""
spark.readStream.table("events").groupBy("country").count().writeStream.option("checkpointLocation", "/chk/c").toTable("c")  # holdfast: ignore[HF102]
spark.readStream.table("events").dropDuplicates(["id"]).writeStream.option("checkpointLocation", "/chk/d").toTable("d")  # holdfast: ignore[HF999] so few
