"""The offsets from which sources continue: reading them, and setting them in a new checkpoint."""
