"""A checkpoint on S3 with the file manager that is made for it."""
from pyspark.sql import SparkSession

MANAGER = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
spark = SparkSession.builder.appName("copies").config("spark.sql.streaming.checkpointFileManagerClass", MANAGER).getOrCreate()
events = spark.readStream.format("kafka").option("subscribe", "events").load()
query = events.writeStream.format("parquet").trigger(processingTime="5 minutes")
query.option("checkpointLocation", "s3a://bucket/chk/events").start("s3a://bucket/events")
