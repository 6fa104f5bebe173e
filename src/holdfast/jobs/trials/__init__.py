"""Trials: run a query in a sandbox, and check what new code does to its state."""
