"""The quoting of names in SQL: in DuckDB, SQLite, PostgreSQL, and MySQL with ANSI quotes."""

from __future__ import annotations


def sql_identifier(name: str) -> str:
    """Return a name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
