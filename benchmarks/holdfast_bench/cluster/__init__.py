"""A query on a cluster of two workers, beside the same on one machine."""
