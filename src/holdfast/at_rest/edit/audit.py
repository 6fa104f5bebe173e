"""What a manifest says of a change by hand: who, when, why, what, and how many rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from holdfast.json_shapes import JsonShape

EDIT: Final = "edit"
UNDO: Final = "undo"


@dataclass(frozen=True, slots=True)
class Audit(JsonShape):
    """One change.

    Attributes:
        kind: `edit`, or `undo` which takes an edit back.
        of: The savepoint that it was made of.
        who: Who did it.
        when_ms: When, in epoch milliseconds.
        why: What for.
        state: The state; None for an undo.
        statement: What was done.
        rows_before: The state's rows before.
        rows_after: And after.
        changed: Rows with another value.
        deleted: Rows that went.
        inserted: Rows that came.
        back_to: Of an undo, the savepoint whose state it has.
    """

    kind: str
    of: str
    who: str
    when_ms: int
    why: str | None
    state: str | None
    statement: str
    rows_before: int | None = None
    rows_after: int | None = None
    changed: int | None = None
    deleted: int | None = None
    inserted: int | None = None
    back_to: str | None = None

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Audit:
        """From a manifest; fields that a newer Holdfast has added are left out."""
        known: dict[str, Any] = {field.name: given.get(field.name) for field in fields(cls)}
        return cls(**known)
