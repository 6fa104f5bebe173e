"""Operators of Holdfast against the same queries in plain PySpark."""
