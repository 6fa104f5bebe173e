"""A requested edit, and its record in the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from holdfast.at_rest.keys import typed
from holdfast.changes.edit.deciders import TableChange
from holdfast.changes.edit.editable_state import Column, NamedColumns, type_words
from holdfast.config.units import counted
from holdfast.errors import Invalid
from holdfast.json_shapes import JsonShape


@dataclass(frozen=True, slots=True)
class Edit:
    """A requested edit: rows set, deleted or inserted, or a function that does it.

    Attributes:
        state: The state's name.
        where: Which rows, in SQL.
        key: Only the rows of this key: JSON, `field=value`, or a bare word.
        set: `column = expression` each.
        delete: Whether the rows go.
        insert: Rows that come, by column.
        change: From a table of all rows to one of what they are to be.
    """

    state: str
    where: str | None = None
    key: str | None = None
    set: tuple[str, ...] = ()
    delete: bool = False
    insert: tuple[Mapping[str, Any], ...] = ()
    change: TableChange | None = None

    def __post_init__(self) -> None:
        asked = [bool(self.set), self.delete, bool(self.insert), self.change is not None]
        if sum(asked) != 1:
            raise Invalid(
                "an edit does one of four things",
                code="HF-E2063",
                found=f"{sum(asked)} of them",
                expected="rows are set, deleted or inserted, or a function changes the table",
                hint="give one of --set, --delete and --insert; several edits come one after the other",
            )
        if (self.where or self.key) and not (self.set or self.delete):
            raise Invalid(
                "only rows that are set or deleted are picked by a condition or a key",
                code="HF-E2064",
                where=self.state,
                hint="leave out the condition and the key, or say what is set",
            )
        if (self.set or self.delete) and not (self.where or self.key):
            raise Invalid(
                f"this would {'delete' if self.delete else 'change'} every row of the state",
                code="HF-E2065",
                where=self.state,
                hint="pick rows by a condition or a key; if every row is meant, say so with the condition"
                " `true`, on the command line with --all",
            )

    @property
    def statement(self) -> str:
        """It in words, for the audit record."""
        picked = [f"where {self.where}"] if self.where else []
        picked += [f"with key {self.key}"] if self.key else []
        if self.change is not None:
            done = f"change by {getattr(self.change, '__qualname__', repr(self.change))}"
        elif self.insert:
            done = f"insert {counted(len(self.insert), 'row')}"
        else:
            assigned = (" = ".join(map(str.strip, text.split("=", 1))) for text in self.set)
            done = "delete" if self.delete else f"set {', '.join(assigned)}"
        return " ".join([done, *picked])


def given_value(state: NamedColumns, column: Column, value: Any) -> Any:
    """A value that a person has given, in its column's type.

    Raises:
        Invalid: It is not of it.
    """
    try:
        return typed(value, column.type)
    except ValueError as error:
        found = str(getattr(error, "found", error))
        raise state.unfit(column.name, found, type_words(column.type)) from error


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
