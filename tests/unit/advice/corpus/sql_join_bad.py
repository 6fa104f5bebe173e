"""SQL over views of two streams: duplicates by one column, and a join that bounds no time."""
from pyspark.sql import SparkSession


def run(spark: SparkSession) -> None:
    clicks = spark.readStream.table("clicks").withWatermark("clicked_at", "10 minutes")
    clicks.createOrReplaceTempView("clicks_now")
    views = spark.readStream.table("views").withWatermark("viewed_at", "10 minutes")
    views.createOrReplaceTempView("views_now")
    users = spark.sql("SELECT DISTINCT user FROM clicks_now")
    users.writeStream.option("checkpointLocation", "hdfs:/chk/users").toTable("users")
    pairs = spark.sql("""
        SELECT c.ad, v.page
        FROM clicks_now c JOIN views_now AS v ON c.ad = v.ad AND c.user = v.user  -- within the hour
    """)
    pairs.writeStream.option("checkpointLocation", "hdfs:/chk/pairs").toTable("pairs")
