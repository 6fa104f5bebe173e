"""A Spark session: Java, jars, settings, workers."""
