"""Lint, advice and cost estimates for the code, the plan and the checkpoint of a query."""
