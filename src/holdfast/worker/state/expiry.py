"""Take out of a key group's rows what has expired, when the group is folded.

It is the clean-up in the background: bounded, because a batch folds few groups, and lasting, because what
is left out is in no base any more. A value that has no stamp is given one here, so that it expires although
nobody asks for its key again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.worker.arrays import numbers
from holdfast.worker.declarations.state_descriptors import MAX_MS, State, Ttl, cutoff_ms, origin_ms
from holdfast.worker.interface import SLOT_PREFIX, STAMP_PREFIX, TIMERS, VALUE_PREFIX, Moment
from holdfast.worker.state.tables.runs import Run

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CONTENT = (VALUE_PREFIX, SLOT_PREFIX)


class Cleaner:
    """Cleans the tables of one operator.

    Args:
        states: What the processor declares.
    """

    def __init__(self, states: Sequence[State]) -> None:
        self._states = tuple(states)

    def gone(self, state: str, stamps: pa.Array, moment: Moment) -> NDArray[np.bool_] | None:
        """Which values of a state with these stamps have expired; None for a state whose values never do."""
        ttl = next((declared.ttl for declared in self._states if declared.name == state), None)
        return None if ttl is None else expired(stamps, ttl, moment)

    def knows_now(self, state: str, moment: Moment) -> bool:
        """Whether values of a state with a TTL can be given a stamp."""
        ttl = next(declared.ttl for declared in self._states if declared.name == state)
        return ttl is not None and origin_ms(ttl.age_from, _now_ms(ttl, moment)) is not None

    def elements(self, state: str, batch: pa.RecordBatch, moment: Moment) -> pa.RecordBatch:
        """The elements of a list or map that have not expired, with a stamp each."""
        ttl = next(declared.ttl for declared in self._states if declared.name == state)
        if ttl is None or not batch.num_rows:
            return batch
        at = batch.schema.get_field_index("t")
        stamps = batch.column(at)
        if stamps.null_count:
            stamps = stamped(stamps, ttl, moment)
            batch = batch.set_column(at, batch.schema.field(at), stamps)
        gone = expired(stamps, ttl, moment)
        return batch.filter(pa.array(~gone)) if gone.any() else batch

    def rows(self, batch: pa.RecordBatch, moment: Moment, elements: Mapping[str, Run]) -> pa.RecordBatch:
        """The rows of keys without expired values, with stamps, and without the keys that have nothing left.

        Args:
            batch: Rows of the table of keys.
            moment: Now.
            elements: The cleaned elements of the same keys, of each list and map.
        """
        if not batch.num_rows:
            return batch
        columns = {name: batch.column(at) for at, name in enumerate(batch.schema.names)}
        changed = False
        for state in self._states:
            if not state.of_keys:
                continue
            if state.has_elements:
                slots = f"{SLOT_PREFIX}{state.name}"
                emptied = numbers(columns[slots].is_valid()) & ~_has_rows(batch, elements[state.name])
                changed |= _blank(columns, emptied, slots)
            elif state.ttl is not None:
                stamp, value = f"{STAMP_PREFIX}{state.name}", f"{VALUE_PREFIX}{state.name}"
                present = columns[value].is_valid()
                if columns[stamp].null_count > columns[value].null_count:
                    given = stamped(columns[stamp], state.ttl, moment)
                    columns[stamp] = pc.if_else(present, given, columns[stamp])
                    changed = True
                gone = numbers(present) & expired(columns[stamp], state.ttl, moment)
                changed |= _blank(columns, gone, stamp, value)
        empty = np.ones(batch.num_rows, np.bool_)
        for name, column in columns.items():
            if name == TIMERS or name.startswith(_CONTENT):
                empty &= numbers(column.is_null())
        if not changed and not empty.any():
            return batch
        cleaned = pa.RecordBatch.from_arrays(list(columns.values()), schema=batch.schema)
        return cleaned.filter(pa.array(~empty))


def stamped(stamps: pa.Array, ttl: Ttl, moment: Moment) -> pa.Array:
    """Stamps with that of now, or of `age_from`, where there is none; null where now is not known."""
    origin = origin_ms(ttl.age_from, _now_ms(ttl, moment))
    return stamps if origin is None else stamps.fill_null(origin)


def expired(stamps: pa.Array, ttl: Ttl, moment: Moment) -> NDArray[np.bool_]:
    """Which stamps have run out: stamp + ttl <= now, without overflow; null never has."""
    cutoff = cutoff_ms(ttl.duration_ms, _now_ms(ttl, moment))
    gone: NDArray[np.bool_] = numbers(stamps.fill_null(MAX_MS)) <= cutoff
    return gone


def _now_ms(ttl: Ttl, moment: Moment) -> int | None:
    return moment.now_ms if ttl.clock == "processing" else moment.event_time_ms


def _blank(columns: dict[str, pa.Array], where: NDArray[np.bool_], *names: str) -> bool:
    if not where.any():
        return False
    for name in names:
        nothing = pa.scalar(None, columns[name].type)
        columns[name] = pc.if_else(pa.array(where), nothing, columns[name])
    return True


def _has_rows(batch: pa.RecordBatch, elements: Run) -> NDArray[np.bool_]:
    rows = Run(batch)
    if not (rows.ord.any() or elements.ord.any()):
        return np.isin(rows.h, elements.h)
    there = set(zip(elements.h.tolist(), elements.ord.tolist(), strict=True))
    return np.array([key in there for key in zip(rows.h.tolist(), rows.ord.tolist(), strict=True)])
