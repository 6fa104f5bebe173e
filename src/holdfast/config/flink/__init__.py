"""Flink's settings, read into Holdfast's."""
