"""Keep one job running."""
