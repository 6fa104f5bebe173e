"""The move of keyed operators' state to new positions, so that each operator finds its state by its name.

Spark finds the state of an operator by the operator's position in the query. Its planner assigns the
positions while it plans each batch, and compares them with the checkpoint in the same step, so no plan can
name them. Therefore the state moves: if the keyed operators of a query have changed places, a copy of the
checkpoint gets their state in the new order. All rows are counted and hashed before and after. Then the copy
and the checkpoint are exchanged in one step, and the former checkpoint is kept.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.changes.engine import state_at_rest
from holdfast.changes.erase.checkpoint_swap import replace_checkpoint
from holdfast.changes.evolving import (
    EvolutionPlan,
    NewCode,
    OperatorStep,
    apply_evolution,
    operator_columns,
)
from holdfast.changes.operator_matching import Matched
from holdfast.changes.working_copy import lead_to
from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.checkpoints.logs import Logs
from holdfast.checkpoints.naming import plan_note
from holdfast.checkpoints.state.states import OperatorShape, shapes
from holdfast.config.checks import local_path
from holdfast.errors import Unsupported
from holdfast.formats.logs.notes import QueryPlan
from holdfast.formats.operators import KEYED_VARIABLES
from holdfast.ownership.checkpoint_guard import MACHINE_TIMING, CheckpointGuard, refuse_open
from holdfast.ownership.usage import usage_of
from holdfast.savepoints.access import ChangeSource
from holdfast.savepoints.restoring import RestoreKind
from holdfast.savepoints.view import workplace
from holdfast.storage import open_storage
from holdfast.storage.local import LocalStorage
from holdfast.storage.port import Storage

if TYPE_CHECKING:
    from holdfast.stream.sinks.query_sink import Sink

_KEPT: Final = ".before-"


@dataclass(frozen=True, slots=True)
class Reordered:
    """Keyed operators whose state was moved to their new positions.

    Attributes:
        checkpoint: The address of the checkpoint.
        before: The names of the keyed operators in the former order.
        after: The names in the new order.
        kept: The directory of the former checkpoint.
        rows: The number of rows of all states.
    """

    checkpoint: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    kept: str
    rows: int

    def __str__(self) -> str:
        return (
            f"the keyed operators changed places from {', '.join(self.before)} to {', '.join(self.after)};"
            f" their state was moved by name, and the former checkpoint is kept in {self.kept}"
        )


def places_swapped(before: QueryPlan, now: QueryPlan) -> bool:
    """Return whether two plans have the same stateful operators, but keyed operators in a different order."""
    kinds = [[step.kind for step in plan.steps if step.stateful] for plan in (before, now)]
    names = sorted(before.operators) == sorted(now.operators)
    return names and before.operators != now.operators and kinds[0] == kinds[1]


def noted_plan_of(checkpoint: Storage) -> QueryPlan | None:
    """Return the plan that wrote the newest batch of a checkpoint, or None if it is not recorded.

    Raises:
        Corrupt: The record of the plans cannot be read.
    """
    noted = plan_note(checkpoint)
    newest = None if noted is None else Logs(checkpoint).newest
    return None if noted is None or newest is None else noted.at(newest)


def move_by_name(
    place: Path, before: QueryPlan, now: QueryPlan, tell: ProgressCallback | None = None
) -> Reordered:
    """Move the state of keyed operators to the positions that they have in new code.

    The caller holds the lock of the checkpoint, and no query of it runs. The new checkpoint is created in a
    working directory next to the checkpoint, which the next change deletes if this process is killed. Until
    the exchange, the checkpoint is unchanged.

    Cost: reads all state three times and writes it once, and needs the disk space of a second checkpoint.

    Args:
        place: The checkpoint.
        before: The plan that wrote its newest batch.
        now: The plan of the new code.
        tell: The progress callback, called with the work done, the total, and the current step.

    Raises:
        Conflict: A process has the checkpoint open or writes to it, or a batch is uncommitted.
        Corrupt: The checkpoint is damaged.
        Unsupported: The state is in a database, or the file system cannot exchange directories.
    """
    storage = LocalStorage(place)
    kept = place.with_name(f"{place.name}{_KEPT}{os.urandom(4).hex()}")
    refuse_open(usage_of(storage, MACHINE_TIMING.wall_ms()))
    guard = CheckpointGuard(storage, MACHINE_TIMING)
    with workplace(LocalStorage(kept), "reorder") as folder:
        made = LocalStorage(folder / "reordered")
        rows = reorder(ChangeSource(storage), made, before, now, folder, guard=guard, tell=tell)
        lead_to(made, storage.uri)
        replace_checkpoint(place, folder / "reordered", guard)
        (folder / "reordered").rename(kept)
    return Reordered(storage.uri, before.operators, now.operators, str(kept), rows)


def find_by_name(sinks: Mapping[str, Sink], places: Mapping[str, str]) -> Iterator[tuple[str, Reordered]]:
    """Move the state of keyed operators that changed places since the newest batch.

    Call it before the queries start, while this process holds their checkpoints. Exhaust the iterator. A
    checkpoint that is not on a local disk is left to the start of the query, which refuses it.

    Args:
        sinks: The sink of each query, by name.
        places: The checkpoint of each query.

    Yields:
        The query, and the move of its state.

    Raises:
        Conflict: A process has the checkpoint open or writes to it, or a batch is uncommitted.
        Corrupt: The checkpoint is damaged.
        Unsupported: The state is in a database, or the file system cannot exchange directories.
    """
    for query, sink in sinks.items():
        place = local_path(places[query])
        if place is None or not place.exists():
            continue
        now = sink.plan()
        if now is None or len(now.operators) < 2:
            continue
        before = noted_plan_of(open_storage(places[query]))
        if before is not None and places_swapped(before, now):
            yield query, move_by_name(place, before, now)


def reorder(
    source: ChangeSource,
    target: Storage,
    before: QueryPlan,
    now: QueryPlan,
    folder: Path,
    *,
    guard: CheckpointGuard | None,
    tell: ProgressCallback | None,
) -> int:
    """Create a checkpoint with the state of keyed operators in a new order, and return its number of rows.

    Args:
        source: The checkpoint or savepoint.
        target: The checkpoint to create.
        before: The plan that wrote its newest batch.
        now: The plan of the new code.
        folder: A local working directory, which the caller deletes.
        guard: The guard of the source; None for a savepoint.
        tell: The progress callback, called with the work done, the total, and the current step.

    Raises:
        As for `move_by_name`.
    """
    state = state_at_rest(source, target, RestoreKind.EVOLVE)
    if state.found.external is not None:
        raise Unsupported(
            "state in a database cannot be moved to new positions",
            code="HF-E7125",
            where=source.uri,
            found=f"{state.found.external.kind}, and the keyed operators {', '.join(now.operators)}",
            expected=", ".join(before.operators),
            hint="restore the former order of the operators",
        )
    old = shapes(state.view, state.batch_id)
    moves = _moves(old, before, now)
    new = sorted(
        (replace(shape, operator_id=moves[shape.operator_id]) for shape in old),
        key=lambda shape: shape.operator_id,
    )
    confs = state.found.confs
    columns = {column.number: column for column in operator_columns(old, before, confs, source.uri)}
    after = {column.number: column for column in operator_columns(new, now, confs, source.uri)}
    steps = tuple(
        OperatorStep(Matched(columns[number], after[moved])) for number, moved in sorted(moves.items())
    )
    plan = EvolutionPlan(
        *state.common(target),
        target=", ".join(now.operators),
        operators=tuple(step.describe() for step in steps),
        changes=(),
        merge=False,
        steps=steps,
        state_format=state.shape.state_format,
    )
    code = NewCode(state.view, now)
    work = folder / "work"
    work.mkdir()
    made = apply_evolution(source, target, plan, code, work, shape=state.shape, tell=tell, guard=guard)
    return made.rows


def _moves(shapes_before: tuple[OperatorShape, ...], before: QueryPlan, now: QueryPlan) -> Mapping[int, int]:
    """Return the new number of each operator; only keyed operators move."""
    keyed = sorted(shape.operator_id for shape in shapes_before if set(shape.variables) == KEYED_VARIABLES)
    numbers = {shape.operator_id: shape.operator_id for shape in shapes_before}
    return {**numbers, **dict(_by_name(keyed, before, now))}


def _by_name(keyed: list[int], before: QueryPlan, now: QueryPlan) -> Iterator[tuple[int, int]]:
    for number, name in zip(keyed, before.operators, strict=True):
        yield number, keyed[now.operators.index(name)]
