"""Aggregates over event time: windows, sessions, running aggregates."""
