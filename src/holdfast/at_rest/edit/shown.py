"""Rows of state as people and JSON see them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.formats.rows.plain import plain


def shown(row: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A row as plain values; None where there is none."""
    return None if row is None else {name: plain(value) for name, value in row.items()}
