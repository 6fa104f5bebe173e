"""A small pipeline on S3 that costs more than it should: nothing says how often."""
orders = spark.readStream.format("delta").load("s3a://lake/orders")
orders.where("cents > 0").writeStream.format("delta").option("checkpointLocation", "s3a://lake/_chk/paid").start("s3a://lake/paid")
