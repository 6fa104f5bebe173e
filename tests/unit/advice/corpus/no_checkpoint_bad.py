"""A query with foreachBatch and no checkpoint."""
def write(rows, batch_id):
    rows.write.format("delta").mode("overwrite").option("replaceWhere", f"batch = {batch_id}").saveAsTable("t")


query = spark.readStream.table("events").writeStream.foreachBatch(write).trigger(processingTime="1 minute").start()
query.awaitTermination()
