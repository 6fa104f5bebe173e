"""The files of a checkpoint, as far as they tell what will hurt."""
