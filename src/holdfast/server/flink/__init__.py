"""Flink's REST resources for Spark's jobs: its paths, formats and codes."""
