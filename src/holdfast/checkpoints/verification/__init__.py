"""Detection of damage in a checkpoint."""
