"""A failure that ends with the exit code of one."""
import logging

query = (
    spark.readStream.table("orders")
    .writeStream.option("checkpointLocation", "hdfs:/chk/orders")
    .toTable("copies")
)
try:
    query.awaitTermination()
except Exception:
    logging.exception("the query has failed")
    raise
finally:
    spark.stop()
