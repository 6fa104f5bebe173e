"""Append into Delta from foreachBatch with a transaction for each batch."""
def append(micro_batch, batch_id):
    (
        micro_batch.write.format("delta")
        .option("txnAppId", "silver.orders")
        .option("txnVersion", batch_id)
        .mode("append")
        .saveAsTable("silver.orders")
    )


(
    spark.readStream.table("bronze.orders")
    .writeStream.foreachBatch(append)
    .option("checkpointLocation", "dbfs:/checkpoints/orders")
    .trigger(availableNow=True)
    .start()
)
