"""A query's plan and state against the code, before it starts."""
