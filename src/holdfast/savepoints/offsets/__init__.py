"""Source offsets: where each source of a query goes on, and a new checkpoint that goes on elsewhere."""
