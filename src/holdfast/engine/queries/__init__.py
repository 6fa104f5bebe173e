"""Queries that run: heard, stopped, paused, rehearsed."""
