"""State at rest: read, explain, mend, move and make it, from the files of checkpoints and savepoints."""
