"""A sink with a log that is not written anew with all that it ever had."""
rows = spark.readStream.format("kafka").option("subscribe", "clicks").load()
query = rows.selectExpr("cast(value as string) as value").writeStream.format("delta").option(
    "checkpointLocation", "hdfs:/chk/clicks"
)
query.start("/tables/clicks")
