"""The creation of a savepoint with changed rows of state: writing, verification and publication."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from holdfast.changes.edit.proving import prove_stores
from holdfast.changes.edit.request import Audit
from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.checkpoints.state.states import operator_states
from holdfast.clock import now_ms
from holdfast.formats.manifest import Manifest
from holdfast.json_shapes import JsonShape
from holdfast.savepoints.catalog import savepoint_uri
from holdfast.savepoints.copying import followed
from holdfast.savepoints.derived import derive
from holdfast.savepoints.leases import Chance, Clock
from holdfast.savepoints.store_edits import StoreChanges, StoreEdits
from holdfast.savepoints.taking import Taken
from holdfast.savepoints.view import SavepointView
from holdfast.storage.port import Storage

PlanT = TypeVar("PlanT", bound=JsonShape)


@dataclass(frozen=True)
class ChangedSavepoint(Generic[PlanT]):
    """A savepoint that was created by changing a different one.

    Attributes:
        plan: The executed plan.
        taken: The new savepoint.
        audit: The record of the change in the manifest.
        verb: The JSON name for the savepoint that was changed.
    """

    verb: ClassVar[str]

    plan: PlanT
    taken: Taken
    audit: Audit

    @property
    def uri(self) -> str:
        """The address of the new savepoint."""
        return self.taken.uri

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: the plan, the new savepoint, and the change."""
        plan = self.plan.as_dict()
        return {
            **plan,
            self.verb: plan["savepoint"],
            **self.taken.as_dict(),
            "change": self.audit.as_dict(),
        }


def derive_changed(
    catalog: Storage,
    target: Storage,
    manifest: Manifest,
    changes: StoreChanges,
    folder: Path,
    change: Mapping[str, Any] | None,
    *,
    noted: Mapping[str, Any] | None = None,
    label: str | None,
    deep: bool,
    clock: Clock = now_ms,
    chance: Chance = os.urandom,
    tell: ProgressCallback | None = None,
) -> Taken:
    """Create a savepoint from an existing one, with changed rows.

    The affected stores are rewritten in a hidden directory. Then every row in them is read back: the changed
    rows must have their new values, and the number and the content hash of all other rows must be unchanged.
    The manifest is written last, which publishes the savepoint.

    Args:
        catalog: The catalog of the original savepoint.
        target: The catalog for the new savepoint.
        manifest: The manifest of the original.
        changes: The changed rows, by store.
        folder: A local working directory, which the caller deletes.
        change: The record of a manual change for the manifest.
        noted: Further fields for the manifest.
        label: A display name.
        deep: Whether to read all rows of the state for exact counts and digests.
        clock: The function that returns epoch milliseconds.
        chance: The function that returns a number of random bytes.
        tell: The progress callback, called with the work done, the total, and the current step.

    Raises:
        As for `derive`.
    """
    view = SavepointView(catalog, manifest.files, savepoint_uri(catalog, manifest.savepoint_id))
    operators = {operator.operator_id: operator for operator in operator_states(view, manifest.batch_id)}
    edits = StoreEdits(view, manifest, folder, clock())
    for store, rows in followed(changes.items(), tell, "writing stores"):
        edits.change(operators[store.operator_id], store, rows)

    return derive(
        target,
        manifest,
        edits.finish(),
        change,
        noted=noted,
        origin=catalog,
        label=label,
        deep=deep,
        prove=lambda made: prove_stores(view, made, manifest.batch_id, changes, tell),
        clock=clock,
        chance=chance,
        tell=tell,
    )
