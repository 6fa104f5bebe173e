"""TODO offsets."""
