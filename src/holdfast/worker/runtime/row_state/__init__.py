"""State as handlers see it that take one event or one key at a time."""
