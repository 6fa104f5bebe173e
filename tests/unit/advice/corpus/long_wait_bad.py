"""A watermark of two weeks."""
from pyspark.sql import functions as F

DELAY = "14 days"
scans = spark.readStream.table("scans").withWatermark("scanned_at", DELAY)
parcels = scans.dropDuplicatesWithinWatermark(["parcel", "place"])
parcels.writeStream.option("checkpointLocation", "/chk/parcels").toTable("parcels")
