"""The observed metrics of a batch by their columns' names, however its progress has them.

A server of Spark Connect writes a row into a progress as its values beside its schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_BARE: Final = {"values", "schema"}


def observed_metrics(progress: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics of a batch by name: rows of Spark's, or mappings."""
    return {name: _named(row) for name, row in (progress.get("observedMetrics") or {}).items()}


def _named(value: Any) -> Any:
    """A value whose bare rows, at any depth, have become mappings."""
    if isinstance(value, list):
        return [_named(item) for item in value]
    fields = value.asDict() if hasattr(value, "asDict") else value
    if not isinstance(fields, Mapping) or set(fields) != _BARE:
        return value
    names = [field["name"] for field in fields["schema"]["fields"]]
    return dict(zip(names, map(_named, fields["values"]), strict=True))
