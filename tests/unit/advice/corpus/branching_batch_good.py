"""Each branch writes once."""
def write(rows, batch_id):
    if batch_id % 10:
        rows.write.mode("overwrite").parquet(f"/tables/x/{batch_id}")
    else:
        rows.coalesce(1).write.mode("overwrite").parquet(f"/tables/x/{batch_id}")


spark.readStream.table("x").writeStream.foreachBatch(write).option("checkpointLocation", "/chk/x").start()
