"""Erase a key from savepoints and checkpoints, and certify what was searched."""
