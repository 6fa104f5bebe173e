"""Columns that are renamed, and windows of windows."""
from pyspark.sql import functions as F

rides = spark.readStream.table("rides").withWatermark("started", "1 hour").withColumnsRenamed({"started": "from_time"})
rides = rides.withColumns({"to_time": F.to_timestamp("ended"), "zone": F.upper("zone")}).na.fill({"zone": "none"})
counts = rides.groupBy(F.window("from_time", "15 minutes").alias("quarter"), "zone").count()
most = counts.groupBy("quarter").agg(F.max("count"))
most.writeStream.option("checkpointLocation", "/chk/quarters").toTable("quarters")
