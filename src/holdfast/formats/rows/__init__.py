"""The rows of state in Spark's formats: their bytes, hashes and types."""
