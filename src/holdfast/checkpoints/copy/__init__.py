"""Which files make up a copy of a checkpoint, and what lets a copy read the same input."""
