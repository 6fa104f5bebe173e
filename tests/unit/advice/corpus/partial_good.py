"""foreachBatch with a function that has more arguments, and overwrites what the batch wrote before."""
from functools import partial


def write(rows, batch_id, table):
    rows.write.mode("overwrite").option("replaceWhere", f"batch = {batch_id}").saveAsTable(table)


events = spark.readStream.table("events")
events.writeStream.foreachBatch(partial(write, table="copies")).option("checkpointLocation", "/chk/copies").start()
