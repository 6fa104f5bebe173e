"""Find damage in a checkpoint."""
