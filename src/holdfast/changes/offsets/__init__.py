"""The offsets from which sources continue: read, and set in a new checkpoint."""
