"""Two aggregates behind each other in update mode, with the check that refuses them switched off."""
from pyspark.sql import functions as F

spark.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")
pages = spark.readStream.table("pages").withWatermark("at", "5 minutes")
users = pages.groupBy(F.window("at", "5 minutes"), "user").agg(F.count("*").alias("pages"))
most = users.groupBy("window").agg(F.max("pages"))
most.writeStream.outputMode("update").option("checkpointLocation", "/chk/most").toTable("most")
