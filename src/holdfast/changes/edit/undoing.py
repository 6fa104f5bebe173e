"""Take an edit back: a savepoint with the state that there was before."""

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
        savepoint: The savepoint that an edit has made.
        back_to: The one that it was made of, whose state comes back.
        catalog: Where the new one goes.
        change: The edit.
        manifest: What comes back.
    """

    savepoint: str
    back_to: str
    catalog: str
    change: Audit = field(metadata=json_as("takes_back"))
    manifest: Manifest = field(repr=False, metadata=json_spread("batch_id", "query_id"))


class Undone(ChangedSavepoint[UndoPlan]):
    """A savepoint with the state that there was before an edit."""

    verb = "undone"


def plan_undo(
    catalog: Storage,
    savepoint_id: str,
    origin: Storage,
    origin_id: str,
    *,
    tell: ProgressCallback | None = None,
) -> UndoPlan:
    """Look at what an edit was made of; changes nothing.

    Args:
        catalog: The catalog of the savepoint that an edit has made.
        savepoint_id: That savepoint.
        origin: The catalog of the one that it was made of, as `made_of` says.
        origin_id: Its id.
        tell: Called with what is done, what there is in all, and what is being done.

    Raises:
        NotFound: One of the two is gone.
        Invalid: No edit has made the savepoint.
        Conflict: Something was erased from one of them, which an undo would bring back.
        Corrupt: The savepoint that comes back is damaged.
    """
    edited = load(catalog, savepoint_id)
    uri = savepoint_uri(catalog, savepoint_id)
    change = change_of(edited, uri)
    back_to = savepoint_uri(origin, origin_id)
    try:
        manifest = prove(origin, origin_id, tell=tell).require()
    except NotFound as error:
        raise NotFound(
            "the savepoint that this one was made of is gone",
            code="HF-E3008",
            where=uri,
            found=back_to,
            hint="an edit can be taken back as long as both are there",
        ) from error
    if len(manifest.erasures) < len(edited.erasures):
        raise Conflict(
            "something was erased since, and an undo would bring it back",
            code="HF-E4002",
            where=back_to,
            found=f"{len(manifest.erasures)} erasures",
            expected=f"{len(edited.erasures)}, as in {uri}",
            hint="erase it there too, then undo",
        )
    return UndoPlan(uri, back_to, catalog.uri, change, manifest)


def change_of(manifest: Manifest, uri: str) -> Audit:
    """The change that has made a savepoint.

    Raises:
        Invalid: None has; it was taken of a checkpoint.
    """
    if manifest.change is None:
        raise Invalid(
            "no edit has made this savepoint",
            code="HF-E2067",
            where=uri,
            found=f"one that was taken of {manifest.checkpoint}",
            hint="`holdfast savepoint list` shows which were made by an edit",
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
) -> Undone:
    """Make a savepoint with the state that there was before an edit; both others stay.

    It is the newest of the catalog afterwards, which is what looks for the newest one finds. In the catalog
    of the edit it takes a manifest's room and nothing more. It has no label unless one is given.

    Raises:
        Conflict: A savepoint has changed since this was planned, or savepoints are being removed.
        NotFound: The savepoint that comes back was deleted.
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
    return Undone(plan, taken, audit)
