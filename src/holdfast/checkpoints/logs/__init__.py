"""The logs of a checkpoint: offsets, commits, sources."""
