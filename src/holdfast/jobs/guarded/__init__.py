"""A query in a process that a platform starts, and ends: `hf.guard`."""
