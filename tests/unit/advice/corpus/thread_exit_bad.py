"""A failure that Kubernetes calls COMPLETED."""
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
finally:
    spark.stop()
