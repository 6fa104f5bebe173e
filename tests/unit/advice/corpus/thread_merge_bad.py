"""Append into Delta from foreachBatch: a repeated batch is there twice."""
def append(micro_batch, batch_id):
    micro_batch.write.format("delta").mode("append").saveAsTable("silver.orders")


(
    spark.readStream.table("bronze.orders")
    .writeStream.foreachBatch(append)
    .option("checkpointLocation", "dbfs:/checkpoints/orders")
    .trigger(availableNow=True)
    .start()
)
