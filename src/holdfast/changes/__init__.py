"""Changes: new checkpoints and savepoints from old ones, with one engine and a step for each change."""
