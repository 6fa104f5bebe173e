"""A job as a class."""
from pyspark.sql import functions as F


class Orders:
    def __init__(self, spark):
        self.spark = spark
        self.events = self.spark.readStream.table("orders").withWatermark("ts", "1 hour")

    def unique(self):
        return self.events.dropDuplicatesWithinWatermark(["order_id"])

    def start(self):
        query = self.unique().writeStream.foreachBatch(self.write).option("checkpointLocation", "/chk/orders")
        return query.start()

    def write(self, rows, batch_id):
        rows.write.format("delta").option("txnAppId", "orders").option("txnVersion", batch_id).mode("append").save("/t")
