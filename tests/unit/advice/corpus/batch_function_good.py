"""Into PostgreSQL by key, each batch, computed once."""
from delta.tables import DeltaTable


def write(batch_df, epoch_id):
    batch_df.persist()
    target = DeltaTable.forName(batch_df.sparkSession, "sales")
    target.alias("t").merge(batch_df.alias("s"), "t.id = s.id").whenNotMatchedInsertAll().execute()
    batch_df.write.mode("overwrite").parquet(f"/tables/sales/batch={epoch_id}")
    batch_df.unpersist()


sales = spark.readStream.table("sales")
sales.writeStream.foreachBatch(write).option("checkpointLocation", "/chk/sales").start()
