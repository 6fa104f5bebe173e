"""A session of which nothing is set."""
from pyspark.sql import SparkSession
from pyspark.sql.functions import window

session = SparkSession.builder.appName("alone").getOrCreate()
stream = session.readStream.format("kafka").option("subscribe", "a").load().withWatermark("timestamp", "1 minute")
stream.groupBy(window("timestamp", "1 minute")).count().writeStream.format("delta").option("checkpointLocation", "/chk/a").start("/a")
