"""The static analysis of a query's code, which is neither imported nor run."""
