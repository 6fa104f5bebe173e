"""Rows of state set, deleted or inserted: the request, its plan, the written rows, their proof, and undo."""
