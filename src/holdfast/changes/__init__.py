"""New checkpoints and savepoints from old ones: one engine, and a step for each kind of change."""
