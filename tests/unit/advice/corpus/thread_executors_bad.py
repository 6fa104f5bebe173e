"""Dynamic allocation and RocksDB without a bound: containers are killed, and state moves about."""
from pyspark.sql import SparkSession, functions as F

spark = (
    SparkSession.builder.config("spark.dynamicAllocation.enabled", True)
    .config("spark.sql.shuffle.partitions", 48)
    .config(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    .getOrCreate()
)
metrics = spark.readStream.table("metrics").withWatermark("ts", "2 minutes")
metrics.groupBy("host", F.window("ts", "1 minute")).avg("load").writeStream.option("checkpointLocation", "/chk/m").toTable("load")
