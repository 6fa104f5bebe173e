"""The same with a bound of the times, and with hours in which a user is counted once."""
from pyspark.sql import SparkSession


def run(spark: SparkSession) -> None:
    clicks = spark.readStream.table("clicks").withWatermark("clicked_at", "10 minutes")
    clicks.createOrReplaceTempView("clicks_now")
    views = spark.readStream.table("views").withWatermark("viewed_at", "10 minutes")
    views.createOrReplaceTempView("views_now")
    users = spark.sql("SELECT user, window(clicked_at, '1 hour') AS hour FROM clicks_now GROUP BY user, hour")
    users.writeStream.option("checkpointLocation", "hdfs:/chk/users").toTable("users")
    pairs = spark.sql("""
        SELECT c.ad, v.page
        FROM clicks_now c JOIN views_now AS v
          ON c.ad = v.ad AND c.user = v.user AND clicked_at BETWEEN viewed_at AND viewed_at + INTERVAL 1 HOUR
    """)
    pairs.writeStream.option("checkpointLocation", "hdfs:/chk/pairs").toTable("pairs")
