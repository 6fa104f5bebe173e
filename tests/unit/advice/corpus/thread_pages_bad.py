"""A driver of 1 GB that runs for months and keeps the usual thousand plans for its pages."""
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("landing").config("spark.driver.memory", "1g").getOrCreate()
rows = spark.readStream.format("kafka").option("subscribe", "landing").load()
rows.writeStream.format("delta").trigger(processingTime="5 seconds").option(
    "checkpointLocation", "hdfs:/chk/landing"
).start("/tables/landing")
