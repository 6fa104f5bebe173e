"""One computation of each batch."""
from pyspark.sql import functions as F


def upsert(df, batch_id):
    kept = df.persist()
    if not kept.isEmpty():
        print(batch_id, kept.count())
        kept.write.format("delta").mode("overwrite").save(f"/tables/counts/{batch_id}")
    kept.unpersist()


events = spark.readStream.table("events").withWatermark("ts", "1 hour")
counts = events.groupBy(F.window("ts", "10 minutes"), "device").count()
counts.writeStream.outputMode("update").foreachBatch(upsert).option("checkpointLocation", "/chk/counts").start()
