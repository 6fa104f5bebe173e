"""Savepoints that are taken again and again, of which the newest few stay."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.checkpoints.record import Record
from holdfast.clock import now_ms
from holdfast.errors import Conflict, HoldfastError, NotFound, Unavailable
from holdfast.formats.manifest import Manifest
from holdfast.json_shapes import JsonShape, json_spread
from holdfast.savepoints.catalog import described, ids_of_query
from holdfast.savepoints.copying import Pace
from holdfast.savepoints.leases import Chance, Clock
from holdfast.savepoints.planning import plan_take
from holdfast.savepoints.removal import delete
from holdfast.savepoints.taking import Taken
from holdfast.savepoints.whole_take import take
from holdfast.storage.port import Storage

# What tells savepoints that may be deleted by themselves from those that somebody took.
LABEL: Final = "periodic"


@dataclass(frozen=True, slots=True)
class PeriodicTake(JsonShape):
    """The result of one turn.

    Attributes:
        query_id: The query.
        batch_id: The newest committed batch.
        taken: The savepoint; None where there is one of this batch already.
        existing: The id of the savepoint that this batch already had; None where one was taken.
        removed: The ids of those that made room for it.
        left: Why some that should have been removed are still there.
    """

    query_id: str
    batch_id: int
    taken: Taken | None = field(metadata=json_spread())
    removed: tuple[str, ...] = ()
    left: str | None = None
    existing: str | None = None


def take_and_retain(
    checkpoint: Storage,
    catalog: Storage,
    *,
    retained: int | None,
    clock: Clock = now_ms,
    chance: Chance = os.urandom,
    label: str = LABEL,
    deep: bool = False,
    record: Record | None = None,
    tell: ProgressCallback | None = None,
) -> PeriodicTake:
    """Take a savepoint, unless the newest of its kind is of the same batch; delete those that are too many.

    Of a kind are savepoints of one query and one checkpoint with the same label; no other is looked at, and
    one that was given another label later is no longer of the kind, nor is one whose state was edited. One
    that cannot be deleted now, since a take is under way for example, is deleted after a later take.

    Args:
        checkpoint: The checkpoint.
        catalog: The catalog.
        retained: How many stay, at least one; None for all.
        clock: The time in epoch milliseconds.
        chance: Returns a number of random bytes.
        label: The label.
        deep: Read the rows of the state however many there are.
        record: What the checkpoint's files were when their batches were committed.
        tell: Called with files done, files in all, and what is being done.

    Raises:
        NotFound: The checkpoint does not exist, or no committed batch yet.
        Corrupt: The checkpoint is damaged; there is no savepoint, and none was deleted.
        Conflict: Savepoints are being removed from the catalog.
        Unavailable: A storage does not answer.
    """
    plan = plan_take(checkpoint, catalog, record=record)
    before = list(_of_a_kind(catalog, plan.query_id, plan.checkpoint, label))
    if before and before[-1].batch_id == plan.batch_id:
        return PeriodicTake(plan.query_id, plan.batch_id, None, existing=before[-1].savepoint_id)
    taken = take(
        checkpoint, catalog, plan, clock=clock, chance=chance, label=label, deep=deep, pace=Pace(), tell=tell
    )
    removed: list[str] = []
    left = None
    for earlier in before[: 0 if retained is None else max(len(before) + 1 - retained, 0)]:
        try:
            if described(catalog, earlier.savepoint_id).manifest != earlier:
                continue  # somebody has labelled it otherwise meanwhile, to keep it
            delete(catalog, earlier.savepoint_id, clock=clock, chance=chance)
            removed.append(earlier.savepoint_id)
        except (Conflict, Unavailable) as error:
            left = error.fact
            break
        except NotFound:
            continue  # somebody else was quicker
    return PeriodicTake(plan.query_id, taken.manifest.batch_id, taken, tuple(removed), left)


def newest_ms(catalog: Storage, query_id: str, checkpoint: str, label: str = LABEL) -> int | None:
    """Return when the newest savepoint of a kind was taken; None without one."""
    return max(
        (manifest.created_ms for manifest in _of_a_kind(catalog, query_id, checkpoint, label)), default=None
    )


def _of_a_kind(catalog: Storage, query_id: str, checkpoint: str, label: str) -> Iterator[Manifest]:
    """Oldest first. The id tells of which query one may be, so that few manifests are read."""
    for savepoint_id in ids_of_query(catalog, query_id):
        with suppress(HoldfastError):  # not complete, damaged or deleted meanwhile: not one to rely on
            listed = described(catalog, savepoint_id)
            manifest = listed.manifest
            if manifest is None or listed.problem is not None:
                continue
            if manifest.change is not None:  # a person has made it, whatever its label
                continue
            if (manifest.query_id, manifest.checkpoint, manifest.label) == (query_id, checkpoint, label):
                yield manifest
