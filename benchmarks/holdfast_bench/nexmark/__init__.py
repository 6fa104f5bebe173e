"""Nexmark: 24 queries over an online auction, on PySpark, on Holdfast and on Flink."""
