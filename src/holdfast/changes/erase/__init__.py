"""TODO erase."""
