"""State as handlers see it that take all events of a pass as a table."""
