"""Runnable examples that check their own results."""
