"""What comes from elsewhere counts where it is written as a stream."""
from shop.sources import orders
from pyspark.sql import functions as F


def start(spark, target):
    frame = orders(spark)
    frame.groupBy("customer").agg(F.collect_set("item")).writeStream.outputMode("complete").format(target).start()
