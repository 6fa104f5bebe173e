"""Take savepoints periodically, and keep the newest few."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
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
from holdfast.savepoints.whole_take import TakeWithoutExpired, take
from holdfast.storage.port import Storage

# The label of savepoints that may be deleted automatically.
LABEL: Final = "periodic"
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS


@dataclass(frozen=True, slots=True)
class PeriodicTake(JsonShape):
    """The result of one periodic take.

    Attributes:
        query_id: The query.
        batch_id: The newest committed batch.
        taken: The savepoint; None if one of this batch already exists.
        existing: The id of the existing savepoint of this batch; None if one was taken.
        removed: The ids of the deleted savepoints.
        left: The reason why surplus savepoints were not deleted; None if all were.

    Example:
        result = hf.savepoints.take_and_retain("checkpoints/visits", "nightly", retain=7)
        assert result.batch_id == 11
        assert result.removed == ()
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
    retained_ms: int | None = None,
    clock: Clock = now_ms,
    chance: Chance = os.urandom,
    label: str = LABEL,
    deep: bool = False,
    record: Record | None = None,
    without_expired: TakeWithoutExpired | None = None,
    tell: ProgressCallback | None = None,
) -> PeriodicTake:
    """Take a savepoint unless the newest one is of the same batch, and delete the surplus ones.

    Only savepoints of the same query and checkpoint with the same label count. Relabelled savepoints and
    savepoints with edited state are ignored. A savepoint that cannot be deleted now, for example during a
    take, is deleted after a later take.

    Args:
        checkpoint: The checkpoint.
        catalog: The catalog.
        retained: Number of savepoints to keep, at least one; None for all.
        retained_ms: The age up to which savepoints are kept, as `surplus` counts; None for any age.
        clock: The time in epoch milliseconds.
        chance: Returns a number of random bytes.
        label: The label.
        deep: Read the rows of the state regardless of their number.
        record: The integrity record of the checkpoint.
        without_expired: Copies the savepoint without its expired rows; None to keep them.
        tell: Called with the number of finished files, the number of all files, and the current step.

    Raises:
        NotFound: The checkpoint does not exist, or has no committed batch.
        Corrupt: The checkpoint is damaged; no savepoint was taken or deleted.
        Conflict: A removal is running in the catalog.
        Unavailable: A storage does not answer.
    """
    plan = plan_take(checkpoint, catalog, record=record)
    before = list(_of_a_kind(catalog, plan.query_id, plan.checkpoint, label))
    if before and before[-1].batch_id == plan.batch_id:
        return PeriodicTake(plan.query_id, plan.batch_id, None, existing=before[-1].savepoint_id)
    taken = take(
        checkpoint,
        catalog,
        plan,
        clock=clock,
        chance=chance,
        label=label,
        deep=deep,
        pace=Pace(),
        without_expired=without_expired,
        tell=tell,
    )
    removed: list[str] = []
    left = None
    places = set(range(0 if retained is None else max(len(before) + 1 - retained, 0)))
    if retained_ms is not None:
        places |= surplus([each.created_ms for each in (*before, taken.manifest)], clock(), retained_ms)
    for earlier in (before[place] for place in sorted(places)):
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


def surplus(created_ms: Sequence[int], now_ms: int, retained_ms: int) -> set[int]:
    """Return the places of the savepoints that are too old or too close to one another.

    All of the last hour are kept, the first of each hour of the last day, and the first of each earlier day,
    up to the age. The newest is always kept.

    Args:
        created_ms: When the savepoints were taken, oldest first.
        now_ms: The current time in epoch milliseconds.
        retained_ms: The maximum age.
    """
    found, kept = set[int](), set[tuple[int, int]]()
    for place, at_ms in enumerate(created_ms[:-1]):
        age_ms = now_ms - at_ms
        if age_ms <= min(_HOUR_MS, retained_ms):
            continue
        unit_ms = _HOUR_MS if age_ms <= _DAY_MS else _DAY_MS
        period = (unit_ms, at_ms // unit_ms)
        if age_ms > retained_ms or period in kept:
            found.add(place)
        kept.add(period)
    return found


def newest_ms(catalog: Storage, query_id: str, checkpoint: str, label: str = LABEL) -> int | None:
    """Return when the newest savepoint of a kind was taken; None without one."""
    return max(
        (manifest.created_ms for manifest in _of_a_kind(catalog, query_id, checkpoint, label)), default=None
    )


def _of_a_kind(catalog: Storage, query_id: str, checkpoint: str, label: str) -> Iterator[Manifest]:
    """Return the matching savepoints, oldest first; the id excludes most other queries without a read."""
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
