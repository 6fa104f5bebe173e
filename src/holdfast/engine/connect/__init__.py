"""Spark Connect: what a client sees of a server, and what only a classic session has."""
