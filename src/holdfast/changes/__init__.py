"""TODO changes."""
