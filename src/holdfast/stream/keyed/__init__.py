"""Keyed, operator and broadcast state, with handlers written in Python."""
