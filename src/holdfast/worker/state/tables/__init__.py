"""Tables of state in memory: sorted runs, segments, levels."""
