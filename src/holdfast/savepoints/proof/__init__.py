"""Prove that a savepoint is what was taken."""
