"""Names as SQL has them: in DuckDB, SQLite and PostgreSQL."""

from __future__ import annotations


def sql_identifier(name: str) -> str:
    """An SQL identifier that means exactly this name."""
    return '"' + name.replace('"', '""') + '"'
