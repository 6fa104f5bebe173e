"""Savepoints, and state that is read from files."""
