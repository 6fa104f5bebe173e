"""The steps that edit or delete rows.

Each step creates a verified savepoint with changed rows from the working copy, and continues with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.changes.expiry import copy_without_expired
from holdfast.changes.working_copy import WorkingCopy
from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.formats.manifest import EXPIRED
from holdfast.json_shapes import JsonShape
from holdfast.savepoints.labels import person
from holdfast.savepoints.taking import Taken
from holdfast.storage.port import Storage

if TYPE_CHECKING:
    from holdfast.changes.edit.request import Edit


@dataclass(frozen=True, slots=True)
class EditedRows(JsonShape):
    """The rows of one state that a step changed.

    Attributes:
        state: The name of the state.
        rows_before: The number of rows before the step.
        rows_after: The number of rows after the step.
        changed: The number of rows with a different value.
        deleted: The number of deleted rows.
        inserted: The number of inserted rows.
    """

    state: str
    rows_before: int
    rows_after: int
    changed: int
    deleted: int
    inserted: int


@dataclass(frozen=True, slots=True)
class EditRows:
    """The step that executes one edit, as `hf.edit` does.

    Attributes:
        request: The edit.
        why: The reason, for the record of the edit.
        may_change_nothing: Whether an edit that changes no row is accepted.
    """

    request: Edit
    why: str | None = None
    may_change_nothing: bool = False
    name: str = "edit"

    def apply(self, work: WorkingCopy, folder: Path, tell: ProgressCallback | None) -> EditedRows:
        """See `Step`; every row of the changed stores is read back."""
        from holdfast.changes.edit import editing  # it needs Arrow

        def edited(catalog: Storage, savepoint_id: str) -> tuple[Taken | None, EditedRows]:
            plan = editing.plan_edit(
                catalog,
                savepoint_id,
                catalog,
                self.request,
                may_change_nothing=self.may_change_nothing,
                tell=tell,
            )
            tally = plan.tally
            report = EditedRows(
                plan.state, tally.rows, tally.rows_after, tally.changed, tally.deleted, tally.inserted
            )
            if not tally.touched:
                return None, report
            return editing.edit(
                catalog, catalog, plan, folder, who=person(), why=self.why, tell=tell
            ).taken, report

        return work.replace_by(edited)


@dataclass(frozen=True, slots=True)
class ExpiredRows(JsonShape):
    """The expired values that a step deleted.

    Attributes:
        values: The number of values, elements of lists and entries of maps.
        keys: The number of keys without any state left.
    """

    values: int
    keys: int


@dataclass(frozen=True, slots=True)
class DropExpired:
    """The step that deletes expired values of keyed state, as `hf.drop_expired` does."""

    name: str = "drop_expired"

    def apply(
        self,
        work: WorkingCopy,
        folder: Path,  # noqa: ARG002 - the protocol's
        tell: ProgressCallback | None,
    ) -> ExpiredRows:
        """See `Step`; all values that have not expired are compared with the original."""

        def dropped(catalog: Storage, savepoint_id: str) -> tuple[Taken, ExpiredRows]:
            taken = copy_without_expired(catalog, savepoint_id, catalog, tell=tell)
            record = taken.manifest.fields[EXPIRED]
            return taken, ExpiredRows(record["values"], record["keys"])

        return work.replace_by(dropped)
