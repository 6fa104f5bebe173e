"""The undo of an edit: a savepoint with the state before the edit."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from holdfast.changes.edit.changed_savepoint import ChangedSavepoint
from holdfast.changes.edit.request import UNDO, Audit
from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.clock import now_ms
from holdfast.errors import Conflict, Invalid, NotFound
from holdfast.formats.manifest import Manifest
from holdfast.json_shapes import JsonShape, json_as, json_spread
from holdfast.savepoints.catalog import load, savepoint_uri
from holdfast.savepoints.derived import FileChanges, derive
from holdfast.savepoints.leases import Chance, Clock
from holdfast.savepoints.proof import prove
from holdfast.storage.memory import MemoryStorage
from holdfast.storage.port import Storage


@dataclass(frozen=True, slots=True)
class UndoPlan(JsonShape):
    """The plan of an undo.

    Attributes:
        savepoint: The savepoint that the edit created.
        back_to: The savepoint before the edit, whose state is restored.
        catalog: The catalog for the new savepoint.
        change: The record of the edit.
        manifest: The manifest of the restored state.

    Example:
        hf.edit("savepoints@daily", "aggregate", key="c1", set={"count": 0}, label="reset")
        plan: hf.UndoPlan = hf.plan_undo("savepoints@reset")
        assert plan.change.statement == "set count = 0 with key c1"
    """

    savepoint: str
    back_to: str
    catalog: str
    change: Audit = field(metadata=json_as("takes_back"))
    manifest: Manifest = field(repr=False, metadata=json_spread("batch_id", "query_id"))


class UndoReport(ChangedSavepoint[UndoPlan]):
    """A savepoint with the state before an edit.

    Example:
        hf.edit("savepoints@daily", "aggregate", key="c1", set={"count": 0}, label="reset")
        report: hf.UndoReport = hf.undo("savepoints@reset")
        assert hf.state(report.uri).get("aggregate", "c1").value["count"] == 12
    """

    verb = "undone"


def plan_undo(
    catalog: Storage,
    savepoint_id: str,
    origin: Storage,
    origin_id: str,
    *,
    tell: ProgressCallback | None = None,
) -> UndoPlan:
    """Plan an undo; changes nothing.

    Args:
        catalog: The catalog of the savepoint that the edit created.
        savepoint_id: The id of that savepoint.
        origin: The catalog of the savepoint before the edit.
        origin_id: The id of the savepoint before the edit.
        tell: The progress callback, called with the work done, the total, and the current step.

    Raises:
        NotFound: One of the two savepoints is missing.
        Invalid: The savepoint was not created by an edit.
        Conflict: A key was erased from one of the savepoints, and an undo would restore it.
        Corrupt: The savepoint before the edit is damaged.
    """
    edited = load(catalog, savepoint_id)
    uri = savepoint_uri(catalog, savepoint_id)
    change = change_of(edited, uri)
    back_to = savepoint_uri(origin, origin_id)
    try:
        manifest = prove(origin, origin_id, tell=tell).require()
    except NotFound as error:
        raise NotFound(
            "the edit cannot be undone, because the savepoint before the edit is missing",
            code="HF-E3008",
            where=uri,
            found=back_to,
            hint="reverse the edit with a new `holdfast state edit`, or restore a different savepoint",
        ) from error
    if len(manifest.erasures) < len(edited.erasures):
        raise Conflict(
            "keys were erased since the edit, and an undo would restore them",
            code="HF-E4002",
            where=back_to,
            found=f"{len(manifest.erasures)} erasures",
            expected=f"{len(edited.erasures)}, as in {uri}",
            hint="erase the keys from the savepoint before the edit too, then undo the edit",
        )
    return UndoPlan(uri, back_to, catalog.uri, change, manifest)


def change_of(manifest: Manifest, uri: str) -> Audit:
    """Return the change that created a savepoint.

    Raises:
        Invalid: The savepoint was taken from a checkpoint, not created by a change.
    """
    if manifest.change is None:
        raise Invalid(
            "the savepoint was not created by an edit",
            code="HF-E2067",
            where=uri,
            found=f"a savepoint taken of {manifest.checkpoint}",
            hint="list the savepoints and their edits with `holdfast savepoint list`",
        )
    return Audit.parse(manifest.change)


def undo(
    catalog: Storage,
    origin: Storage,
    plan: UndoPlan,
    *,
    who: str,
    why: str | None = None,
    label: str | None = None,
    clock: Clock = now_ms,
    chance: Chance = os.urandom,
    tell: ProgressCallback | None = None,
) -> UndoReport:
    """Create a savepoint with the state before an edit; keep the two existing savepoints.

    The new savepoint becomes the newest of the catalog. In the catalog of the edit, it needs only the space
    of a manifest. It has no label unless one is given.

    Raises:
        Conflict: A savepoint has changed since the plan, or savepoints are being deleted.
        NotFound: The savepoint before the edit was deleted.
    """
    audit = Audit(
        kind=UNDO,
        of=plan.savepoint,
        who=who,
        when_ms=clock(),
        why=why,
        state=plan.change.state,
        statement=f"undo {plan.change.statement}",
        back_to=plan.back_to,
    )
    taken = derive(
        catalog,
        plan.manifest,
        FileChanges(MemoryStorage()),
        audit.as_dict(),
        origin=origin,
        label=label,
        clock=clock,
        chance=chance,
        tell=tell,
    )
    return UndoReport(plan, taken, audit)
