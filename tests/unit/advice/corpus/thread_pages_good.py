"""A driver of 1 GB that keeps what a person looks at."""
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("landing").config("spark.driver.memory", "1g").config("spark.sql.ui.retainedExecutions", "50").getOrCreate()
rows = spark.readStream.format("kafka").option("subscribe", "landing").load()
rows.writeStream.format("delta").trigger(processingTime="5 seconds").option(
    "checkpointLocation", "hdfs:/chk/landing"
).start("/tables/landing")
