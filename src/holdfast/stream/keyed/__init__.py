"""Keyed, operator and broadcast state written in Python."""
