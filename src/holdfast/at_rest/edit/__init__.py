"""State mended at rest: edits, undo and erasure. Each makes a new savepoint whole, or none at all."""
