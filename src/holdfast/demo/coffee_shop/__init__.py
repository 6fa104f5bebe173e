"""A day at a coffee shop: the streams, the job, and what the answers must be."""
