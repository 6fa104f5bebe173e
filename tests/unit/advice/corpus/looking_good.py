"""An experiment on generated rows."""
events = spark.readStream.format("rate").load()
events.writeStream.format("console").outputMode("append").start()
