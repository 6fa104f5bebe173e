"""Fold key groups, expire rows, and count what a group holds.

Folding a group rewrites all of its rows, so it must be rare; a restart reads the whole log, so it must not be
too rare. A batch folds only a few groups, which bounds its cost.

Values expire when a group is folded, because the new base omits them. A value without a stamp gets one here,
so that it expires even if its key is never read again.

The counts are in the group's record and are committed with its rows, so they are correct after a restart, a
rescale or a restore. A pass updates them by its changes; a new base is counted from scratch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.formats.key_groups import Meta
from holdfast.worker.arrays import numbers
from holdfast.worker.declarations.state_descriptors import MAX_MS, State, StateKind, Ttl, cutoff_ms, origin_ms
from holdfast.worker.interface import SLOT_PREFIX, STAMP_PREFIX, TIMERS, VALUE_PREFIX, Moment
from holdfast.worker.state.layout import ROWS, BlobSchema
from holdfast.worker.state.tables import Run

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Counts = NDArray[np.int64]
    Groups = NDArray[np.int64]


# The log of a group is folded when it is this many times its base, and at least so many bytes or changes.
FOLD_RATIO = 2.0
FOLD_BYTES = 32 << 10
FOLD_CHANGES = 256
# In one batch, new bases have at most this many bytes, or as many as the batch's changes, and at least one.
FOLD_BUDGET = 1 << 20
# Groups with blobs of a former form go before all others, so that a former form is gone after a while.
_OLDER = 1000.0


@dataclass(frozen=True, slots=True)
class FoldCandidate:
    """An open group of a batch.

    Attributes:
        group: Its number.
        meta: Its record in the store.
        changed_bytes: The estimated size of the batch's changes.
        must: Whether it must be folded.
    """

    group: int
    meta: Meta
    changed_bytes: int
    must: bool


def chosen(candidates: Iterable[FoldCandidate], form: bytes, turn: int | None) -> set[int]:
    """Return the groups to fold now, within the budget: with a former form or a long log.

    Args:
        candidates: The open groups that have state.
        form: The fingerprint of the current form.
        turn: A group to fold for expired values if it has a log, or None if nothing expires.
    """
    ripe: list[tuple[float, int, int]] = []
    groups: set[int] = set()
    total = 0
    for candidate in candidates:
        meta = candidate.meta
        if candidate.must or (candidate.group == turn and meta.log_count):
            groups.add(candidate.group)
            continue
        total += candidate.changed_bytes
        # The groups grow alike; a share of their own keeps them from being ripe all at once.
        limit = max(FOLD_BYTES, FOLD_RATIO * meta.base_bytes) * (0.75 + 0.5 * (candidate.group * 0.618 % 1))
        older = meta.mixed or meta.form != form
        if older or meta.log_bytes > limit or meta.log_count >= FOLD_CHANGES:
            score = meta.log_bytes / limit + meta.log_count / FOLD_CHANGES
            ripe.append((score + _OLDER * older, candidate.group, meta.base_bytes))
    budget = max(FOLD_BUDGET, total)
    for _, group, size in sorted(ripe, reverse=True):
        if budget <= 0:
            break
        groups.add(group)
        budget -= size
    return groups


_CONTENT = (VALUE_PREFIX, SLOT_PREFIX)


class Cleaner:
    """Cleans the tables of one operator.

    Args:
        states: What the processor declares.
    """

    def __init__(self, states: Sequence[State]) -> None:
        self._states = tuple(states)

    def gone(self, state: str, stamps: pa.Array, moment: Moment) -> NDArray[np.bool_] | None:
        """Return a mask of expired values by these stamps; None for a state whose values never expire."""
        ttl = next((declared.ttl for declared in self._states if declared.name == state), None)
        return None if ttl is None else expired(stamps, ttl, moment)

    def knows_now(self, state: str, moment: Moment) -> bool:
        """Return whether values of a state with a TTL can be given a stamp."""
        ttl = next(declared.ttl for declared in self._states if declared.name == state)
        return ttl is not None and origin_ms(ttl.age_from, _now_ms(ttl, moment)) is not None

    def elements(self, state: str, batch: pa.RecordBatch, moment: Moment) -> pa.RecordBatch:
        """Return the elements of a list or map that have not expired, with a stamp each."""
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
        """Return the rows of keys without expired values, with stamps, and without empty keys.

        Args:
            batch: Rows of the table of keys.
            moment: The current time.
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
    """Return stamps, with missing ones set to now or `age_from`; null if now is unknown."""
    origin = origin_ms(ttl.age_from, _now_ms(ttl, moment))
    return stamps if origin is None else stamps.fill_null(origin)


def expired(stamps: pa.Array, ttl: Ttl, moment: Moment) -> NDArray[np.bool_]:
    """Return a mask of expired stamps: stamp + ttl <= now, without overflow; null never expires."""
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


# A group's counts are a vector: keys, timers, then entries and bytes of each state in the form's order.
KEYS, TIMER_COUNT, STATES = 0, 1, 2


def width(form: BlobSchema) -> int:
    """Return the number of counts of a group."""
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
    """Return a vector of counts by the names of the form's states."""
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
            place
            for name, place in self._places.items()
            if form.states[name]["kind"] == StateKind.BROADCAST.value
        ]

    def rows_changed(
        self, groups: Groups, batch: pa.RecordBatch, before: Callable[[str], pa.Array]
    ) -> tuple[int, int]:
        """Count changed rows of the table of keys.

        Args:
            groups: The group of each row.
            batch: The new rows.
            before: Returns a former column.

        Returns:
            The numbers of added and of removed keys.
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
        """Add the bytes of changed rows of a table to these groups.

        Divides the bytes by the rows of each group; a new base is measured exactly.
        """
        for state, place in self._places.items():
            size = sum(batch.column(at).nbytes for at in self._columns[state]) if table == ROWS else 0
            if table == state:
                size = batch.nbytes
            if size:
                self._changes[groups, place + 1] += size * rows // batch.num_rows

    def appended(self, group: int, before: Counts) -> Counts:
        """Return the counts of a group with its changes included."""
        counts: Counts = before + self._changes[group]
        self._changes[group] = 0
        return counts

    def count(self, tables: Mapping[str, Run]) -> Counts:
        """Return the counts of live rows."""
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
        """Return a group's counts without entries that other groups have too."""
        own = np.array(counts, np.int64)
        if group:
            own[self._copied] = 0
        return own

    def none(self) -> Counts:
        """Return zero counts."""
        return np.zeros(self._width, np.int64)

    def _add(self, groups: Groups, place: int, change: Any) -> None:
        if change.any():
            sums = np.bincount(groups, weights=change, minlength=len(self._changes))
            self._changes[:, place] += np.rint(sums).astype(np.int64)


def valid(column: pa.Array) -> int:
    """Return the number of non-null cells of a column."""
    return len(column) - int(column.null_count)


def _timers(texts: pa.Array) -> NDArray[np.int64]:
    """Return the number of timers of each key, from their encoded texts."""
    if texts.null_count == len(texts):
        return np.zeros(len(texts), np.int64)
    several = pc.add(pc.count_substring(texts, "|"), 1)
    return np.asarray(numbers(pc.fill_null(several, 0)), np.int64)


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    return batch.column(batch.schema.get_field_index(name))


@dataclass(slots=True)
class Tally:
    """The work of one task, by the names of lanes, with times in nanoseconds.

    Attributes:
        keys: The number of keys looked up.
        keys_added: The number of new keys.
        keys_removed: The number of removed keys.
        keys_written: The number of keys whose rows were written, without bases.
        expired: The number of expired values and elements that were removed or replaced, by state.
        read_ns: The time to look up keys, including loads, in nanoseconds.
        write_ns: The time to store and write changes, in nanoseconds.
    """

    keys: int = 0
    loaded_groups: int = 0
    folded_groups: int = 0
    change_bytes: int = 0
    base_bytes: int = 0
    keys_added: int = 0
    keys_removed: int = 0
    keys_written: int = 0
    expired: Counter[str] = field(default_factory=Counter)
    read_ns: int = 0
    write_ns: int = 0
