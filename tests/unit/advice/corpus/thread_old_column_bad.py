"""The window is made of the frame before the watermark, as an example in Spark's own documentation once did."""
from pyspark.sql import functions as F

words = spark.readStream.table("words")
timed = words.withWatermark("timestamp", "10 minutes")
counts = timed.groupBy(F.window(words.timestamp, "10 minutes", "5 minutes"), words["word"]).count()
counts.writeStream.option("checkpointLocation", "hdfs:/chk/words").toTable("counts")
