"""TODO keyed."""
