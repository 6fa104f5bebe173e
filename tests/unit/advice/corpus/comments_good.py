"""A comment with its reason."""
spark.readStream.table("events").groupBy("country").count().writeStream.option("checkpointLocation", "/chk/c").toTable("c")  # holdfast: ignore[HF102] 200 countries
