"""Two aggregates behind each other in append mode, which Spark answers rightly."""
from pyspark.sql import functions as F

pages = spark.readStream.table("pages").withWatermark("at", "5 minutes")
users = pages.groupBy(F.window("at", "5 minutes"), "user").agg(F.count("*").alias("pages"))
most = users.groupBy("window").agg(F.max("pages"))
most.writeStream.outputMode("append").option("checkpointLocation", "/chk/most").toTable("most")
