"""Four cores for two hundred partitions."""
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = (
    SparkSession.builder.config("spark.executor.instances", "2")
    .config("spark.executor.cores", "2")
    .config("spark.executor.memory", "8g")
    .config("spark.executor.memoryOverhead", "2g")
    .config("spark.sql.shuffle.partitions", "200")
    .config("spark.sql.ui.retainedExecutions", "50")
    .config(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    .config("spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage", "true")
    .config("spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB", "500")
    .getOrCreate()
)
taps = spark.readStream.table("taps").withWatermark("at", "5 minutes")
lines = taps.groupBy(F.window("at", "1 minute"), "line").count()
lines.writeStream.trigger(processingTime="10 seconds").option("checkpointLocation", "hdfs:/chk/lines").toTable("lines")
