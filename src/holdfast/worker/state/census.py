"""How much a key group holds: its keys, its timers, and the entries and bytes of each state.

The counts stand in the group's record and are committed with its rows, so they are right after a restart, a
rescale or a restore. What a pass changes is added to them; a new base is counted anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.worker.arrays import numbers
from holdfast.worker.declarations.state_descriptors import Kind
from holdfast.worker.interface import SLOT_PREFIX, STAMP_PREFIX, TIMERS, VALUE_PREFIX
from holdfast.worker.state.blob_schema import ROWS, BlobSchema
from holdfast.worker.state.tables.runs import Run

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Counts = NDArray[np.int64]
    Groups = NDArray[np.int64]

# A group's counts are a vector: keys, timers, then entries and bytes of each state in the form's order.
KEYS, TIMER_COUNT, STATES = 0, 1, 2


def width(form: BlobSchema) -> int:
    """How many counts a group has."""
    return STATES + 2 * len(form.states)


@dataclass(frozen=True, slots=True)
class Totals:
    """The counts of several groups together.

    Attributes:
        keys: Keys with a row.
        timers: Timers that are registered.
        entries: Of each state: keys with a value, elements of a list, entries of a map.
        sizes: Of each state: the bytes of its values in the groups' blobs, former ones included that no new
            base has left out yet.
    """

    keys: int
    timers: int
    entries: Mapping[str, int]
    sizes: Mapping[str, int]


def totals_of(form: BlobSchema, counts: Sequence[int] | Counts) -> Totals:
    """A vector of counts by the names of the form's states."""
    plain = [int(count) for count in counts]
    return Totals(
        plain[KEYS],
        plain[TIMER_COUNT],
        dict(zip(form.states, plain[STATES::2], strict=True)),
        dict(zip(form.states, plain[STATES + 1 :: 2], strict=True)),
    )


class Census:
    """Counts the groups of one operator.

    Args:
        form: Today's tables.
        key_groups: How many groups there are.
    """

    def __init__(self, form: BlobSchema, key_groups: int) -> None:
        self._form = form
        self._width = width(form)
        self._changes = np.zeros((key_groups, self._width), np.int64)
        self._places = {name: STATES + 2 * at for at, name in enumerate(form.states)}
        names = form.tables[ROWS].names
        # Where each state's values are in the table of keys; those of a list or map are in its own table.
        self._columns = {
            state: [
                names.index(f"{prefix}{state}")
                for prefix in (VALUE_PREFIX, SLOT_PREFIX, STAMP_PREFIX)
                if f"{prefix}{state}" in names
            ]
            for state in form.states
        }
        self._values = [state for state in form.states if f"{VALUE_PREFIX}{state}" in names]
        self._has_timers = TIMERS in names
        # Every group has a copy of a broadcast stream's rows; those of the first are counted.
        self._copied = [
            place for name, place in self._places.items() if form.states[name]["kind"] == Kind.BROADCAST.value
        ]

    def rows_changed(
        self, groups: Groups, batch: pa.RecordBatch, before: Callable[[str], pa.Array]
    ) -> tuple[int, int]:
        """Count changed rows of the table of keys.

        Args:
            groups: The group of each row.
            batch: The rows as they are now.
            before: Gives a column as it was before.

        Returns:
            How many keys there are more, and how many are gone.
        """
        had = np.zeros(batch.num_rows, np.bool_)
        for name in self._form.content:
            had |= numbers(before(name).is_valid())
        has = ~numbers(_column(batch, "dead"))
        self._add(groups, KEYS, has.astype(np.int64) - had)
        for state in self._values:
            name = f"{VALUE_PREFIX}{state}"
            now = numbers(_column(batch, name).is_valid()).astype(np.int64)
            self._add(groups, self._places[state], now - numbers(before(name).is_valid()))
        if self._has_timers:
            now = _timers(_column(batch, TIMERS))
            self._add(groups, TIMER_COUNT, now - _timers(before(TIMERS)))
        return int((has & ~had).sum()), int((had & ~has).sum())

    def elements_changed(
        self, groups: Groups, state: str, batch: pa.RecordBatch, had: NDArray[np.bool_]
    ) -> None:
        """Count changed elements of a list or map, and which of them were there before."""
        has = ~numbers(_column(batch, "dead"))
        self._add(groups, self._places[state], has.astype(np.int64) - had)

    def bytes_added(self, table: str, batch: pa.RecordBatch, groups: Groups, rows: Groups) -> None:
        """Count the bytes of changed rows of a table, of which each of these groups has so many.

        A group has its part of them by its rows; a new base is measured exactly.
        """
        for state, place in self._places.items():
            size = sum(batch.column(at).nbytes for at in self._columns[state]) if table == ROWS else 0
            if table == state:
                size = batch.nbytes
            if size:
                self._changes[groups, place + 1] += size * rows // batch.num_rows

    def appended(self, group: int, before: Counts) -> Counts:
        """The counts of a group with its changes, which are counted now."""
        counts: Counts = before + self._changes[group]
        self._changes[group] = 0
        return counts

    def count(self, tables: Mapping[str, Run]) -> Counts:
        """The counts of live rows."""
        counts = self.none()
        rows = tables.get(ROWS)
        for state, place in self._places.items():
            if state in tables:
                counts[place], counts[place + 1] = len(tables[state]), tables[state].batch.nbytes
            if rows is not None:
                counts[place + 1] += sum(rows.batch.column(at).nbytes for at in self._columns[state])
        if rows is not None:
            counts[KEYS] = len(rows)
            for state in self._values:
                counts[self._places[state]] = valid(rows.column(f"{VALUE_PREFIX}{state}"))
            if self._has_timers:
                counts[TIMER_COUNT] = int(_timers(rows.column(TIMERS)).sum())
        return counts

    def own(self, group: int, counts: Sequence[int]) -> Counts:
        """A group's counts without the entries that another group has too."""
        own = np.array(counts, np.int64)
        if group:
            own[self._copied] = 0
        return own

    def none(self) -> Counts:
        """The counts of nothing."""
        return np.zeros(self._width, np.int64)

    def _add(self, groups: Groups, place: int, change: Any) -> None:
        if change.any():
            sums = np.bincount(groups, weights=change, minlength=len(self._changes))
            self._changes[:, place] += np.rint(sums).astype(np.int64)


def valid(column: pa.Array) -> int:
    """How many cells of a column are not null."""
    return len(column) - int(column.null_count)


def _timers(texts: pa.Array) -> NDArray[np.int64]:
    """How many timers each key has; `|` stands between two, and in no name."""
    if texts.null_count == len(texts):
        return np.zeros(len(texts), np.int64)
    several = pc.add(pc.count_substring(texts, "|"), 1)
    return np.asarray(numbers(pc.fill_null(several, 0)), np.int64)


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    return batch.column(batch.schema.get_field_index(name))
