"""The same without a processor."""
import holdfast as hf
from pyspark.sql import functions as F


@hf.job(name="cents", checkpoint="checkpoints/cents")
def cents(spark):
    out = spark.readStream.table("orders").select("customer", (F.col("amount") * 100).cast("long").alias("cents"))
    return hf.sink(out).parquet("tables/cents")
