"""Query plans: read, described, and given our operators."""
