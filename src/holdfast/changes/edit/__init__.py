"""Edits of rows of state: the request, the plan, the written rows, their verification, and undo."""
