"""Read state from files: by key, row by row, as tables, in SQL."""
