"""Advice before it hurts: what will cost state, memory or time, seen in code or in a checkpoint."""
