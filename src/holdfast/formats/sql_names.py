"""Names as SQL has them: in DuckDB, SQLite, PostgreSQL, and MySQL in a session of ANSI quotes."""

from __future__ import annotations


def sql_identifier(name: str) -> str:
    """Return an SQL identifier that means exactly this name."""
    return '"' + name.replace('"', '""') + '"'
