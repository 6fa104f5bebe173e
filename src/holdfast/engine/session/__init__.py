"""Spark sessions: Java, jars, settings and workers."""
