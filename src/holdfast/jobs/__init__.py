"""Jobs: their definition, their driver process and the supervisor that keeps it running."""
