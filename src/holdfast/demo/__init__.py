"""Examples that run to their end and check themselves."""
