"""A checkpoint on S3 with the file manager that renames."""
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("copies").getOrCreate()
events = spark.readStream.format("kafka").option("subscribe", "events").load()
query = events.writeStream.format("parquet").trigger(processingTime="5 minutes")
query.option("checkpointLocation", "s3a://bucket/chk/events").start("s3a://bucket/events")
