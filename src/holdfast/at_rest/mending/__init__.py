"""State mended at rest: edits, undo and erasure. Each makes a new savepoint, or none at all."""
