"""Flink's REST resources for Spark jobs, with Flink's paths, formats and codes."""
