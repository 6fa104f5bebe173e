"""The window is made of the column that has the watermark."""
from pyspark.sql import functions as F

words = spark.readStream.table("words")
timed = words.withWatermark("timestamp", "10 minutes")
counts = timed.groupBy(F.window(timed.timestamp, "10 minutes", "5 minutes"), timed["word"]).count()
counts.writeStream.option("checkpointLocation", "hdfs:/chk/words").toTable("counts")
