"""The formats of Spark's files, decoded without Spark."""
