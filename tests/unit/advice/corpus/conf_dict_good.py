"""Settings in a dict."""
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

CONF = {
    "spark.sql.shuffle.partitions": "16",
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
    "spark.sql.streaming.minBatchesToRetain": "20",
}
builder = SparkSession.builder
for key, value in CONF.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
readings = spark.readStream.table("readings").withWatermark("ts", "5 minutes")
readings.groupBy(F.window("ts", "1 minute")).avg("value").writeStream.option("checkpointLocation", "/chk/r").toTable("avg")
