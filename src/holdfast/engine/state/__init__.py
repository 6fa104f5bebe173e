"""Spark's own access to state and checkpoints."""
