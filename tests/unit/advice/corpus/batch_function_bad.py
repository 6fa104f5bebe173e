"""Into PostgreSQL and into a file, each batch."""
URL = "jdbc:postgresql://db.example/shop"


def write(batch_df, epoch_id):
    batch_df.write.format("jdbc").option("url", URL).option("dbtable", "sales").mode("append").save()
    batch_df.write.mode("append").parquet("/tables/sales")


sales = spark.readStream.table("sales")
sales.writeStream.foreachBatch(write).option("checkpointLocation", "/chk/sales").start()
