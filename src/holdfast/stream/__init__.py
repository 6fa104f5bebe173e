"""Operators and sinks for pipelines, over Spark's own plan."""
