"""The state of a checkpoint: its stores, column families and rows."""
