"""A session of a user by session windows."""
from pyspark.sql import functions as F

users = (
    spark.readStream.table("clicks")
    .withWatermark("at", "10 minutes")
    .groupBy("user", F.session_window("at", "30 minutes"))
    .count()
)
users.writeStream.option("checkpointLocation", "/chk/users").toTable("users")
