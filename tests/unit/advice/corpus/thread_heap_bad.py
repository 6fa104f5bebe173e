"""Out of memory after days: millions of keys on the heap."""
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "200").config("spark.executor.memory", "16g").getOrCreate()
clicks = spark.readStream.format("kafka").option("subscribe", "clicks").load().selectExpr("cast(value as string) user", "timestamp")
users = clicks.groupBy("user").agg(F.max("timestamp").alias("last"), F.count("*").alias("clicks"))
users.writeStream.outputMode("update").foreachBatch(lambda df, i: df.write.mode("overwrite").parquet(f"/users/{i}")).option(
    "checkpointLocation", "/chk/users"
).start()
