"""A session of which nothing is set, and a query that keeps no state."""
from pyspark.sql import SparkSession

session = SparkSession.builder.appName("alone").getOrCreate()
stream = session.readStream.format("kafka").option("subscribe", "a").load()
stream.selectExpr("cast(value as string)").writeStream.format("delta").option("checkpointLocation", "/chk/a").start("/a")
