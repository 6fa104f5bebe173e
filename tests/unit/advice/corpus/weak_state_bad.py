"""State without what finds damage, on the disk of one machine."""
from pyspark.sql import functions as F

STORE = "spark.sql.streaming.stateStore."
spark.conf.set(STORE + "rocksdb.changelogCheckpointing.enabled", "false")
spark.conf.set(STORE + "rowChecksum.enabled", False)
spark.conf.set(STORE + "checkpointFormatVersion", 1)
events = spark.readStream.table("events").withWatermark("ts", "1 hour")
hours = events.groupBy(F.window("ts", "1 hour")).count()
hours.writeStream.option("checkpointLocation", "file:///data/checkpoints/hours").toTable("hours")
