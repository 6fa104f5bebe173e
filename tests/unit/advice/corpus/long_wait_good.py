"""A watermark of six hours."""
from pyspark.sql import functions as F

DELAY = "6 hours"
scans = spark.readStream.table("scans").withWatermark("scanned_at", DELAY)
parcels = scans.dropDuplicatesWithinWatermark(["parcel", "place"])
parcels.writeStream.option("checkpointLocation", "/chk/parcels").toTable("parcels")
