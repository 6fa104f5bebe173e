"""The code of a query, read as text: nothing of it is imported or run."""
