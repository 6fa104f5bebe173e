"""foreachBatch with a function that has more arguments."""
from functools import partial


def write(rows, batch_id, table):
    rows.write.mode("append").saveAsTable(table)


events = spark.readStream.table("events")
events.writeStream.foreachBatch(partial(write, table="copies")).option("checkpointLocation", "/chk/copies").start()
