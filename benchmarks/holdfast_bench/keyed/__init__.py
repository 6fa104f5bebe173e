"""Keyed state against `transformWithState` and Spark's own aggregate."""
