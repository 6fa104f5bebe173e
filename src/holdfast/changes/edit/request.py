"""A requested edit, and its record in the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from holdfast.at_rest.keys import typed
from holdfast.changes.edit.deciders import TableChange
from holdfast.changes.edit.editable_state import Column, NamedColumns, type_words
from holdfast.errors import Invalid
from holdfast.json_shapes import JsonShape
from holdfast.quantities import counted


@dataclass(frozen=True, slots=True)
class Edit:
    """A requested edit: rows to set, delete or insert, or a function that changes the table.

    Attributes:
        state: The name of the state.
        where: The condition for the rows, in SQL; None for all rows.
        key: The key whose rows to edit: JSON, `field=value`, or a bare word; None for any key.
        set: The assignments, each as `column = expression`.
        delete: Whether to delete the rows.
        insert: The new rows, by column.
        change: The function from a table of all rows to the new table; None without one.
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
                "an edit needs exactly one operation",
                code="HF-E2063",
                found=f"{sum(asked)} operations",
                expected="one of set, delete, insert, or a function",
                hint="give one of --set, --delete and --insert; run several edits one after the other",
            )
        if (self.where or self.key) and not (self.set or self.delete):
            raise Invalid(
                "a condition or a key was given without --set or --delete",
                code="HF-E2064",
                where=self.state,
                hint="add --set or --delete, or remove the condition and the key",
            )
        if (self.set or self.delete) and not (self.where or self.key):
            raise Invalid(
                f"the edit would {'delete' if self.delete else 'change'} every row of the state",
                code="HF-E2065",
                where=self.state,
                hint="select rows by a condition or a key; to confirm that every row is meant, use the "
                "condition `true`, or --all on the command line",
            )

    @property
    def statement(self) -> str:
        """The edit as text, for the audit record."""
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
    """Convert a user's value to the type of its column.

    Raises:
        Invalid: The value does not match the type.
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
    """The audit record of a change.

    Attributes:
        kind: `edit`, or `undo` for the undo of an edit.
        of: The savepoint that was changed.
        who: The author of the change.
        when_ms: The time of the change, in epoch milliseconds.
        why: The reason for the change.
        state: The state; None for an undo.
        statement: The change as text.
        rows_before: The number of the state's rows before the change.
        rows_after: The number of the state's rows after the change.
        changed: The number of rows with a different value.
        deleted: The number of deleted rows.
        inserted: The number of inserted rows.
        back_to: For an undo, the savepoint whose state it restores.
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
        """Parse the record in a manifest; fields of newer versions of Holdfast are ignored."""
        known: dict[str, Any] = {field.name: given.get(field.name) for field in fields(cls)}
        return cls(**known)
