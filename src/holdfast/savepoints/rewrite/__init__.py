"""State written anew: other partitions, another provider, changed rows."""
