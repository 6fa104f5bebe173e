"""Offsets have aged out, and someone has switched the error off."""
options = {"kafka.bootstrap.servers": "kafka.example:9092", "subscribe": "pings", "failOnDataLoss": "false"}
pings = spark.readStream.format("kafka").options(**options).load()
pings.writeStream.format("parquet").option("checkpointLocation", "/chk/pings").start("/tables/pings")
