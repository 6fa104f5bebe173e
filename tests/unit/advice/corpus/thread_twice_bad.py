"""State is loaded again for each action of foreachBatch."""
from pyspark.sql import functions as F


def upsert(df, batch_id):
    if df.isEmpty():
        return
    print(batch_id, df.count())
    df.write.format("delta").mode("overwrite").save(f"/tables/counts/{batch_id}")


events = spark.readStream.table("events").withWatermark("ts", "1 hour")
counts = events.groupBy(F.window("ts", "10 minutes"), "device").count()
counts.writeStream.outputMode("update").foreachBatch(upsert).option("checkpointLocation", "/chk/counts").start()
