"""What comes from elsewhere may have a watermark, and may be no stream."""
from shop.sources import customers, orders
from pyspark.sql import functions as F


def start(spark, target, place):
    frame = orders(spark)
    hours = frame.groupBy(F.window("ts", "1 hour")).count()
    hours.writeStream.outputMode("append").format(target).option("checkpointLocation", place).start()
    customers(spark).groupBy("city").agg(F.collect_set("name")).write.saveAsTable("cities")
