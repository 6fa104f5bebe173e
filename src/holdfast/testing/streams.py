"""Streams as a harness takes them, described without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.worker.declarations.types import schema_of
from holdfast.worker.runtime.features.broadcast import Broadcast


def broadcast(
    columns: Any,
    *,
    key: str | Sequence[str],
    version: str | None = None,
    withdrawn: str | None = None,
    name: str = "broadcast",
) -> Broadcast:
    """Describe a broadcast stream for a `Harness`; the arguments mean what they do in `hf.broadcast`.

    Args:
        columns: Its columns: "rule string, limit double", or a schema.
        key: The columns that tell its rows apart.
        version: The column by which rows are ordered.
        withdrawn: The column that takes a row back.
        name: The stream's name.
    """
    keys = (key,) if isinstance(key, str) else tuple(key)
    return Broadcast(name, schema_of(columns), keys, version, withdrawn)
