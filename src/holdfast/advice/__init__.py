"""Advice before it hurts: what in the code of a query, or in its checkpoint, will cost state, memory or time."""
