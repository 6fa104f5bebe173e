"""A job as a class."""
from pyspark.sql import functions as F


class Orders:
    def __init__(self, spark):
        self.spark = spark
        self.events = self.spark.readStream.table("orders")

    def unique(self):
        return self.events.dropDuplicates(["order_id"])

    def start(self):
        query = self.unique().writeStream.foreachBatch(self.write).option("checkpointLocation", "/chk/orders")
        return query.start()

    def write(self, rows, batch_id):
        rows.write.mode("append").insertInto("orders_clean")
