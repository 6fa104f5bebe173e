"""Someone's experiment that went to production."""
events = spark.readStream.format("kafka").option("subscribe", "events").load()
events.writeStream.format("memory").queryName("events").outputMode("append").start()
