"""Offsets that have aged out stop the query."""
options = {"kafka.bootstrap.servers": "kafka.example:9092", "subscribe": "pings"}
pings = spark.readStream.format("kafka").options(**options).load()
pings.writeStream.format("parquet").option("checkpointLocation", "/chk/pings").start("/tables/pings")
