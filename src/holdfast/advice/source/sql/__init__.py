"""SQL in the texts of a file."""
