"""What the state of a savepoint is to new code."""
