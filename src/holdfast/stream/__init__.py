"""Operators and sinks for streaming queries, built on Spark's own plans."""
