"""State with what finds damage, on one machine that is all there is."""
from pyspark.sql import SparkSession, functions as F

STORE = "spark.sql.streaming.stateStore."
spark = (
    SparkSession.builder.master("local[4]")
    .config("spark.sql.shuffle.partitions", "4")
    .config(STORE + "providerClass", "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")
    .config(STORE + "rocksdb.boundedMemoryUsage", "true")
    .config(STORE + "rocksdb.changelogCheckpointing.enabled", "true")
    .config(STORE + "rowChecksum.enabled", True)
    .config(STORE + "checkpointFormatVersion", 2)
    .getOrCreate()
)
events = spark.readStream.table("events").withWatermark("ts", "1 hour")
hours = events.groupBy(F.window("ts", "1 hour")).count()
hours.writeStream.option("checkpointLocation", "file:///data/checkpoints/hours").toTable("hours")
