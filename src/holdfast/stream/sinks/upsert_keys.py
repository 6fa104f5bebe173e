"""What an upsert asks of its keys, into whatever table."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.config.units import counted
from holdfast.errors import Invalid


def require_keys(keys: Sequence[str], columns: Sequence[str], table: str) -> None:
    """See that the columns of a key are there, each once.

    Raises:
        Invalid: One is no column of the query, or is there twice, or there is none.
    """
    if not keys or len(set(keys)) < len(keys) or not set(keys) <= set(columns):
        raise Invalid(
            "an upsert needs the columns that tell its rows apart",
            where=f"the query written to {table!r}",
            found=f"keys={list(keys)}",
            expected="some of " + ", ".join(columns),
            hint='name the columns of the key, each once: keys=["order_id"]',
        )


def null_key(where: str, rows: int, keys: Sequence[str]) -> Invalid:
    """The refusal of a batch in which a key is null."""
    return Invalid(
        "an upsert's key is null",
        where=where,
        found=f"{counted(rows, 'row')} of the batch without {' and '.join(keys)}",
        hint="filter them out, or give them a key with `coalesce`",
    )


def repeated_key(where: str, rows: int, key: str) -> Invalid:
    """The refusal of a batch that has several rows for a key."""
    return Invalid(
        "a batch holds two rows for one key",
        where=where,
        found=f"{rows} rows for {key}",
        expected="one row per key: nothing says which of them is the last",
        hint="aggregate by the key first, or add a column to the key",
    )
