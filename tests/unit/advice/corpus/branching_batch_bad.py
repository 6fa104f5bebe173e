"""One branch writes twice."""
def write(rows, batch_id):
    if batch_id % 10:
        rows.write.mode("overwrite").parquet(f"/tables/x/{batch_id}")
    else:
        rows.write.mode("overwrite").parquet(f"/tables/x/{batch_id}")
        rows.groupBy("day").count().write.mode("overwrite").parquet("/tables/days")


spark.readStream.table("x").writeStream.foreachBatch(write).option("checkpointLocation", "/chk/x").start()
