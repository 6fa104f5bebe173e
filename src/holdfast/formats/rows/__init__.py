"""Rows as Spark holds them: their bytes, their hashes, their types."""
