"""Reading state from the files of checkpoints and savepoints: by key, by row, in SQL, over batches."""
