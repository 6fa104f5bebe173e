"""Run a query beside itself, and judge what new code would do to its state."""
