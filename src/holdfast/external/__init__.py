"""State in a database outside the cluster, read and written without a JVM."""
