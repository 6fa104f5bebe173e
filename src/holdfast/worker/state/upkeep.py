"""The maintenance of key groups: folding, expiry, and counting.

Folding a group rewrites all of its rows, so it must be rare. A restart reads the whole log, so folding must
not be too rare. A batch folds only a few groups, which limits its cost.

Expired values are removed when a group is folded, because the new base omits them. A value without a
timestamp gets one then, so that it expires even if its key is never read again.

The counts are in the group's record and are committed with its rows, so they are correct after a restart, a
rescale or a restore. A pass updates them with its changes; the counts of a new base are computed from
scratch.
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


# The log of a group is folded when it has this multiple of its base's size, and a minimum of bytes or
# changes.
FOLD_RATIO = 2.0
FOLD_BYTES = 32 << 10
FOLD_CHANGES = 256
# New bases in one batch have at most this many bytes, or the bytes of the batch's changes; at least one is
# written.
FOLD_BUDGET = 1 << 20
# Groups with blobs of a former schema are folded first, so that former schemas disappear.
_OLDER = 1000.0


@dataclass(frozen=True, slots=True)
class FoldCandidate:
    """An open group of a batch.

    Attributes:
        group: The number of the group.
        meta: The group's record in the store.
        changed_bytes: The estimated size of the batch's changes.
        must: Whether the group must be folded in this batch.
    """

    group: int
    meta: Meta
    changed_bytes: int
    must: bool


def chosen(candidates: Iterable[FoldCandidate], form: bytes, turn: int | None) -> set[int]:
    """Return the groups to fold now, within the budget: those with a former schema or a long log.

    Args:
        candidates: The open groups that have state.
        form: The fingerprint of the current schema.
        turn: The group to fold for expired values, if it has a log; None if nothing expires.
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
        # All groups grow at the same rate; a different threshold for each keeps them from being folded
        # together.
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
    """A remover of expired values from the tables of one operator.

    Args:
        states: The states that the processor declares.
    """

    def __init__(self, states: Sequence[State]) -> None:
        self._states = tuple(states)

    def gone(self, state: str, stamps: pa.Array, moment: Moment) -> NDArray[np.bool_] | None:
        """Return a mask of the values expired by these timestamps; None for a state without a TTL."""
        ttl = next((declared.ttl for declared in self._states if declared.name == state), None)
        return None if ttl is None else expired(stamps, ttl, moment)

    def knows_now(self, state: str, moment: Moment) -> bool:
        """Return whether the time is known from which values of a state with a TTL count their age."""
        ttl = next(declared.ttl for declared in self._states if declared.name == state)
        return ttl is not None and origin_ms(ttl.age_from, _now_ms(ttl, moment)) is not None

    def elements(self, state: str, batch: pa.RecordBatch, moment: Moment) -> pa.RecordBatch:
        """Return the elements of a list or map that have not expired, each with a timestamp."""
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
        """Return the rows of keys with timestamps, without expired values and without keys that have no
        state.

        Args:
            batch: Rows of the table of keys.
            moment: The current time.
            elements: The remaining elements of the same keys, for each list and map.
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
    """Return timestamps with missing ones set to now or `age_from`; they stay null if now is unknown."""
    origin = origin_ms(ttl.age_from, _now_ms(ttl, moment))
    return stamps if origin is None else stamps.fill_null(origin)


def expired(stamps: pa.Array, ttl: Ttl, moment: Moment) -> NDArray[np.bool_]:
    """Return a mask of expired timestamps: timestamp + TTL <= now, without overflow; null never expires."""
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


# The counts of a group are a vector: keys, timers, then entries and bytes of each state in schema order.
KEYS, TIMER_COUNT, STATES = 0, 1, 2


def width(form: BlobSchema) -> int:
    """Return the length of a group's vector of counts."""
    return STATES + 2 * len(form.states)


@dataclass(frozen=True, slots=True)
class Totals:
    """The sums of the counts of several groups.

    Attributes:
        keys: The number of keys with a row.
        timers: The number of set timers.
        entries: For each state, the number of keys with a value, of elements of lists, or of entries of maps.
        sizes: For each state, the bytes of its values in the groups' blobs, including replaced values that no
            new base has removed yet.
    """

    keys: int
    timers: int
    entries: Mapping[str, int]
    sizes: Mapping[str, int]


def totals_of(form: BlobSchema, counts: Sequence[int] | Counts) -> Totals:
    """Return a vector of counts as totals, with the names of the schema's states."""
    plain = [int(count) for count in counts]
    return Totals(
        plain[KEYS],
        plain[TIMER_COUNT],
        dict(zip(form.states, plain[STATES::2], strict=True)),
        dict(zip(form.states, plain[STATES + 1 :: 2], strict=True)),
    )


class Census:
    """A counter of the contents of one operator's key groups.

    Args:
        form: The current blob schema.
        key_groups: The number of key groups.
    """

    def __init__(self, form: BlobSchema, key_groups: int) -> None:
        self._form = form
        self._width = width(form)
        self._changes = np.zeros((key_groups, self._width), np.int64)
        self._places = {name: STATES + 2 * at for at, name in enumerate(form.states)}
        names = form.tables[ROWS].names
        # The columns of each state's values in the table of keys; a list or map has its own table.
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
        # Every group has a copy of a broadcast stream's rows; only those of the first group are counted.
        self._copied = [
            place
            for name, place in self._places.items()
            if form.states[name]["kind"] == StateKind.BROADCAST.value
        ]

    def rows_changed(
        self, groups: Groups, batch: pa.RecordBatch, before: Callable[[str], pa.Array]
    ) -> tuple[int, int]:
        """Count the changed rows of the table of keys.

        Args:
            groups: The group of each row.
            batch: The new rows.
            before: Returns a column with the former values.

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
        """Count the changed elements of a list or map; `had` is a mask of those that existed before."""
        has = ~numbers(_column(batch, "dead"))
        self._add(groups, self._places[state], has.astype(np.int64) - had)

    def bytes_added(self, table: str, batch: pa.RecordBatch, groups: Groups, rows: Groups) -> None:
        """Add the bytes of a table's changed rows to the counts of these groups.

        The bytes are divided by the number of rows of each group; those of a new base are exact.
        """
        for state, place in self._places.items():
            size = sum(batch.column(at).nbytes for at in self._columns[state]) if table == ROWS else 0
            if table == state:
                size = batch.nbytes
            if size:
                self._changes[groups, place + 1] += size * rows // batch.num_rows

    def appended(self, group: int, before: Counts) -> Counts:
        """Return the counts of a group after its changes, and reset the changes."""
        counts: Counts = before + self._changes[group]
        self._changes[group] = 0
        return counts

    def count(self, tables: Mapping[str, Run]) -> Counts:
        """Return the counts of a group from its live rows."""
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
        """Return a group's counts without entries that every group has a copy of."""
        own = np.array(counts, np.int64)
        if group:
            own[self._copied] = 0
        return own

    def none(self) -> Counts:
        """Return a vector of zero counts."""
        return np.zeros(self._width, np.int64)

    def _add(self, groups: Groups, place: int, change: Any) -> None:
        if change.any():
            sums = np.bincount(groups, weights=change, minlength=len(self._changes))
            self._changes[:, place] += np.rint(sums).astype(np.int64)


def valid(column: pa.Array) -> int:
    """Return the number of non-null cells of a column."""
    return len(column) - int(column.null_count)


def _timers(texts: pa.Array) -> NDArray[np.int64]:
    """Return the number of timers of each key, from their encoded strings."""
    if texts.null_count == len(texts):
        return np.zeros(len(texts), np.int64)
    several = pc.add(pc.count_substring(texts, "|"), 1)
    return np.asarray(numbers(pc.fill_null(several, 0)), np.int64)


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    return batch.column(batch.schema.get_field_index(name))


@dataclass(slots=True)
class Tally:
    """The work of one task since the last report; times are in nanoseconds.

    Attributes:
        keys: The number of keys looked up.
        keys_added: The number of new keys.
        keys_removed: The number of removed keys.
        keys_written: The number of keys whose rows were written to a log.
        expired: The number of expired values and elements that were removed or replaced, by state.
        read_ns: The time spent finding keys, including loads, in nanoseconds.
        write_ns: The time spent collecting and writing changes, in nanoseconds.
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
