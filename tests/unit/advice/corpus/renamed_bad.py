"""Columns that are renamed and made anew, and a window over none of those with the watermark."""
from pyspark.sql import functions as F

rides = spark.readStream.table("rides").withWatermark("started", "1 hour").withColumnsRenamed({"started": "from_time"})
rides = rides.withColumns({"to_time": F.to_timestamp("ended"), "zone": F.upper("zone")}).na.fill({"zone": "none"})
counts = rides.groupBy(F.window("to_time", "15 minutes").alias("quarter"), "zone").count()
counts.writeStream.option("checkpointLocation", "/chk/quarters").toTable("quarters")
