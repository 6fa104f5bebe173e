"""The same once a minute."""
orders = spark.readStream.format("delta").load("s3a://lake/orders")
(
    orders.where("cents > 0")
    .writeStream.format("delta")
    .trigger(processingTime="1 minute")
    .option("checkpointLocation", "s3a://lake/_chk/paid")
    .start("s3a://lake/paid")
)
