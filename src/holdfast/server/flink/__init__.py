"""Flink's REST resources: its paths, its shapes, its codes, told of Spark's jobs."""
