"""The state of a checkpoint: stores, column families, rows."""
