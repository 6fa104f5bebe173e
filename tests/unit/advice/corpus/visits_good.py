"""Visits of a shop by customer and day, from Kafka into Delta."""
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = (
    SparkSession.builder.appName("visits")
    .config("spark.sql.shuffle.partitions", 8)
    .config(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    .config("spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage", "true")
    .getOrCreate()
)
raw = spark.readStream.format("kafka").option("subscribe", "visits").load()
visits = raw.select(F.from_json(F.col("value").cast("string"), "customer string, ts timestamp").alias("v")).select("v.*")
counts = (
    visits.withWatermark("ts", "30 minutes")
    .groupBy("customer", F.window("ts", "1 day"))
    .agg(F.count("*").alias("visits"))
)
(
    counts.writeStream.outputMode("append")
    .format("delta")
    .option("checkpointLocation", "hdfs:/checkpoints/visits")
    .toTable("visits")
)
