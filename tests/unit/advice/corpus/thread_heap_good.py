"""Users of a day, in RocksDB of bounded memory."""
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

STORE = "spark.sql.streaming.stateStore"
spark = (
    SparkSession.builder.config("spark.sql.shuffle.partitions", "24")
    .config(f"{STORE}.providerClass", "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")
    .config(f"{STORE}.rocksdb.boundedMemoryUsage", "true")
    .config(f"{STORE}.rocksdb.changelogCheckpointing.enabled", "true")
    .getOrCreate()
)
clicks = spark.readStream.format("kafka").option("subscribe", "clicks").load().selectExpr("cast(value as string) user", "timestamp")
users = clicks.withWatermark("timestamp", "1 hour").groupBy("user", F.window("timestamp", "1 day")).count()
users.writeStream.outputMode("update").foreachBatch(lambda df, i: df.write.mode("overwrite").parquet(f"/users/{i}")).option(
    "checkpointLocation", "/chk/users"
).start()
