"""Bytes to values: what Spark writes, read without Spark."""
