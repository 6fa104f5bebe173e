"""Nobody changes a checkpoint that a query may be using."""
