"""Savepoints without the values that have expired."""
