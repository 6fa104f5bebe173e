"""Names out of pyspark.sql.functions by a star."""
from pyspark.sql.functions import *

clicks = spark.readStream.table("clicks")
paths = clicks.withWatermark("at", "20 minutes").groupBy(session_window("at", "10 minutes"), "user").agg(
    count("*").alias("pages"), min("at").alias("came"), max_by("page", "at").alias("left_at")
)
paths.writeStream.option("checkpointLocation", "/chk/paths").toTable("paths")
