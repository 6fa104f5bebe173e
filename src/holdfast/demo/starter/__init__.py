"""A job to begin with: its files as they are written into a directory of one's own."""
