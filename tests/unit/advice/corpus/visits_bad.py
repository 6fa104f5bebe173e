"""Visits of a shop by customer, from Kafka into Delta."""
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.builder.appName("visits").config("spark.sql.shuffle.partitions", 8).getOrCreate()
raw = spark.readStream.format("kafka").option("subscribe", "visits").load()
visits = raw.select(F.from_json(F.col("value").cast("string"), "customer string, ts timestamp").alias("v")).select("v.*")
counts = visits.groupBy("customer").agg(F.count("*").alias("visits"))
(
    counts.writeStream.outputMode("complete")
    .format("delta")
    .option("checkpointLocation", "/tmp/checkpoints/visits")
    .toTable("visits")
)
