"""A sink of files whose every tenth batch is slow, and slower each week."""
rows = spark.readStream.format("kafka").option("subscribe", "clicks").load()
query = rows.selectExpr("cast(value as string) as value").writeStream.format("json").option(
    "checkpointLocation", "hdfs:/chk/clicks"
)
query.start("/tables/clicks")
