"""The values, elements and timers of many keys in columns, for `on_batch`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from numpy.lib.mixins import NDArrayOperatorsMixin

from holdfast.errors import Internal, Invalid
from holdfast.worker.arrays import first_rows, last_rows, latest, offsets_of, placed, starts_of, whole
from holdfast.worker.declarations.state_descriptors import State, add, ufunc_of
from holdfast.worker.declarations.types import check_value
from holdfast.worker.interface import SLOT_PREFIX, STAMP_PREFIX, VALUE_PREFIX, Moment, Touched
from holdfast.worker.runtime.cells import thawer
from holdfast.worker.runtime.columns import Unfit, cast_column, column_of, values_of
from holdfast.worker.runtime.handles import gave_nothing
from holdfast.worker.runtime.ttl import Clocks, TtlRule, read, rule_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Mask = NDArray[np.bool_]
    Positions = NDArray[np.int64]


def arrow_of(values: Any, kind: pa.DataType, size: int, what: str) -> pa.Array:
    """Convert an array, a list, or one value for all keys to an Arrow array of a type.

    Raises:
        Invalid: The array has the wrong length, or a value does not match the type.
    """
    if isinstance(values, np.ndarray):
        values = pa.array(values)
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        column = whole(values)
        if column.type != kind:
            column = whole(cast_column(column, kind, what))
    else:
        given: Sequence[Any] = values if isinstance(values, (list, tuple)) else [values] * size
        column = column_at(given, kind, what)
    if len(column) != size:
        raise another_length(column, size, what)
    return column


def column_at(values: Sequence[Any], kind: pa.DataType, where: str) -> pa.Array:
    """Convert Python values to a column.

    Raises:
        Invalid: A value does not match the type.
    """
    try:
        return column_of(values, kind)
    except Unfit as unfit:
        raise unfit.moved(where) from unfit


def another_length(array: Sized, size: int, where: str) -> Invalid:
    """Return the error for an array without exactly one value per key or per event."""
    return Invalid(
        "an array has the wrong length",
        code="HF-E2504",
        where=where,
        found=f"{len(array)} values",
        expected=f"{size} values",
        hint="pass one value per event to add values, and one per key to set them",
    )


def mask_of(where: Any, size: int, what: str) -> Mask | None:
    """Convert a mask to a numpy array; None means all and is returned unchanged.

    Raises:
        Invalid: The value is not a boolean array, or has the wrong length.
    """
    if where is None:
        return None
    if isinstance(where, (pa.Array, pa.ChunkedArray)):
        where = whole(where).fill_null(False).to_numpy(zero_copy_only=False)
    mask = np.asarray(where)
    if mask.dtype != np.bool_ or mask.shape != (size,):
        raise Invalid(
            "the mask has the wrong type or length",
            code="HF-E2505",
            where=what,
            found=f"{mask.dtype} of shape {mask.shape}",
            expected=f"bool of shape ({size},)",
            hint="pass a bool array of the expected length, as in state.visits.get() > 3",
        )
    return mask


def is_plain_number(kind: pa.DataType) -> bool:
    """Return whether a type is an integer, a float or a boolean, which handlers can get as numpy."""
    return bool(kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind))


def valid(column: pa.Array) -> Mask:
    """Return a mask of the cells that are not null."""
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    mask: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return mask


def column_for_handler(column: pa.Array, default: Any) -> Any:
    """Return a column for a handler: a numpy array for numbers with a default, otherwise an Arrow array."""
    if default is None:
        return column
    if column.null_count:
        nested = kinds.is_nested(column.type)
        filler = check_value(default, column.type, "default") if nested else pa.scalar(default, column.type)
        column = column.fill_null(filler)
    return column.to_numpy(zero_copy_only=False) if is_plain_number(column.type) else column


def masked(column: pa.Array, keep: Mask) -> pa.Array:
    """Return a column with the cells outside a mask set to null."""
    if keep.all():
        return column
    return pc.if_else(pa.array(keep), column, pa.scalar(None, column.type))


def numbers_of(column: pa.Array) -> NDArray[Any]:
    """Return a column of numbers as int64 or float64, with 0 for null."""
    zero = False if kinds.is_boolean(column.type) else 0
    dense = column.fill_null(zero) if column.null_count else column
    values = dense.to_numpy(zero_copy_only=False)
    return np.asarray(values, np.float64 if values.dtype.kind == "f" else np.int64)


_LOWEST = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class View:
    """The keys of one call, and its rows: events or timers.

    Attributes:
        keys: The indices of the keys in the pass, ascending, or None for all keys of the pass.
        size: The number of keys.
        position: The key of each row, as an index among the keys of the call.
        row_times: The event time of each row.
        key_times: The latest event time among the rows of each key.
    """

    keys: Positions | None
    size: int
    position: Positions
    row_times: NDArray[np.int64] | int
    key_times: NDArray[np.int64] | int

    def of(self, column: pa.Array) -> pa.Array:
        """Return the cells of the call's keys from a column of the pass."""
        return column if self.keys is None else column.take(pa.array(self.keys))

    def into(self, column: pa.Array, cells: pa.Array) -> pa.Array:
        """Return a column of the pass with the cells of the call's keys replaced."""
        return cells if self.keys is None else placed(column, self.keys, cells)

    def whole_positions(self, local: Positions) -> Positions:
        """Convert indices among the call's keys to indices in the pass."""
        return local if self.keys is None else self.keys[local]


class TableCells:
    """A state's column of the row table during a pass, with its timestamps."""

    def __init__(self, state: State, clocks: Clocks) -> None:
        self.state = state
        self.rule: TtlRule | None = rule_of(state, clocks)
        self._stored: pa.Array | None = None
        self._stored_stamps: pa.Array | None = None
        self._touched: Touched | None = None
        self.column: pa.Array = None
        self.stamps: pa.Array = None

    def begin(self, touched: Touched, moment: Moment) -> None:
        """Start a pass; the column is read at its first use."""
        self._touched, self._stored = touched, None
        if self.rule is not None:
            self.rule.begin(moment)

    def open(self) -> None:
        """Read the column from the store, if it has not been read."""
        if self._stored is not None:
            return
        if self._touched is None:
            raise RuntimeError("a state table is valid only in the call that received it")
        self.column = self._stored = whole(self._touched.stored(f"{VALUE_PREFIX}{self.state.name}"))
        if self.rule is not None:
            self._stored_stamps = whole(self._touched.stored(f"{STAMP_PREFIX}{self.state.name}"))
            self.stamps = masked(self._stored_stamps.fill_null(self.rule.origin), valid(self.column))

    def columns(self) -> dict[str, pa.Array]:
        """Return the columns of values and timestamps that changed."""
        if self._stored is None:
            return {}
        columns = {}
        if not self.column.equals(self._stored):
            columns[f"{VALUE_PREFIX}{self.state.name}"] = self.column
        if self.rule is not None and not self.stamps.equals(self._stored_stamps):
            columns[f"{STAMP_PREFIX}{self.state.name}"] = self.stamps
        return columns


class HeldColumn:
    """The base class for columns of values and accumulators."""

    def __init__(self, cells: TableCells, view: View) -> None:
        self._cells = cells
        self._view = view
        self._where = f"state {cells.state.name}"

    def clear(self, where: Any = None) -> None:
        """Clear the state of the keys in a mask, or of all keys."""
        self._cells.open()
        mask = mask_of(where, self._view.size, self._where)
        keep = np.zeros(self._view.size, np.bool_) if mask is None else ~mask
        cells, view = self._cells, self._view
        self._put(masked(view.of(cells.column), keep), None)

    def _put(self, cells: pa.Array, stamps: NDArray[np.int64] | None) -> None:
        """Replace the cells of the call's keys and, if given, their timestamps."""
        held, view = self._cells, self._view
        held.column = view.into(held.column, cells)
        if held.rule is not None:
            now = pa.array(stamps) if stamps is not None else view.of(held.stamps)
            held.stamps = view.into(held.stamps, masked(now, valid(cells)))

    def _read(self) -> pa.Array:
        """Read the cells of the call's keys: remove expired ones, set timestamps if reads extend the TTL."""
        held, view = self._cells, self._view
        held.open()
        cells = view.of(held.column)
        if held.rule is None:
            return cells
        reading = read(held.rule, valid(cells), numbers_of(view.of(held.stamps)), self._now())
        self._put(masked(cells, reading.kept), reading.stamps)
        return masked(cells, reading.shown)

    def _alive(self) -> tuple[pa.Array, Mask, NDArray[np.int64]]:
        """Return the cells of the call's keys, a mask of live ones, and timestamps, without changing the
        state.
        """
        held, view = self._cells, self._view
        held.open()
        cells = view.of(held.column)
        present = valid(cells)
        if held.rule is None:
            return cells, present, np.zeros(0, np.int64)
        stamps = numbers_of(view.of(held.stamps))
        return cells, present & ~(stamps <= held.rule.cutoff), stamps

    def _now(self) -> NDArray[np.int64] | int:
        rule = self._cells.rule
        return self._view.key_times if rule is not None and rule.event else rule.clock.stamp if rule else 0

    def _stamped(
        self,
        written: Mask,
        alive: Mask,
        stamps: NDArray[np.int64],
        now: NDArray[np.int64] | int | None = None,
    ) -> NDArray[np.int64] | None:
        """Return the timestamps after writes to some keys."""
        rule = self._cells.rule
        if rule is None:
            return None
        now = self._now() if now is None else now
        return np.where(written, rule.stamps(np.where(alive, stamps, _LOWEST), now), stamps)

    def _in_force(
        self, alive: Mask, position: Positions, mask: Mask | None
    ) -> tuple[Mask | None, NDArray[np.int64] | int]:
        """Return a mask of the additions that count, and the timestamp of each key after them.

        In event time, an addition may expire before the next one, which then starts with an empty state. So
        for a key without a live value, the first addition that counts is the first one that has not expired,
        or else the last one.
        """
        rule, times = self._cells.rule, self._view.row_times
        if rule is None or not rule.event or isinstance(times, int):
            return None, self._now()
        times = times if mask is None else times[mask]
        stamps = latest(position, times, self._view.size)
        old = times <= rule.cutoff
        if not old.any():
            return None, stamps
        row = np.arange(len(position))
        start = np.append(row[~old], -1)[first_rows(position[~old], self._view.size)]
        last = last_rows(position, self._view.size)
        none = (start < 0) & (last >= 0)
        start[none] = last[none]
        stamps[none] = times[last[none]]
        return alive[position] | (row >= start[position]), stamps


class ValueColumn(HeldColumn, NDArrayOperatorsMixin):
    """A value state of many keys. In arithmetic it stands for the array of its values: `state.visits + 1`.

    Assigning to it calls `set`: `state.visits = state.visits + state.counts()`.
    """

    def get(self, default: Any = None) -> Any:
        """Return the values of all keys.

        Numbers with a default, declared or passed here, are returned as a numpy array. Everything else is
        returned as an Arrow array, with null for a key without a value.
        """
        declared = self._cells.state.default
        return column_for_handler(self._read(), declared if default is None else default)

    def set(self, values: Any, where: Any = None) -> None:
        """Set the values of the keys in a mask, or of all keys; null clears a value.

        Raises:
            Invalid: A value does not match the type, or is null although the state has a default.
        """
        cells, alive, stamps = self._alive()
        state, size = self._cells.state, self._view.size
        new = arrow_of(values, state.type, size, self._where)
        mask = mask_of(where, size, self._where)
        given = valid(new)
        if state.default is not None and not (given if mask is None else given | ~mask).all():
            raise Invalid(
                "a state with a default cannot be set to null",
                code="HF-E2506",
                where=self._where,
                hint=f"use state.{state.name}.clear(mask) to clear values",
            )
        if mask is not None:
            new = pc.if_else(pa.array(mask), new, cells)
        written = np.ones(size, np.bool_) if mask is None else mask
        self._put(new, self._stamped(written, alive, stamps))

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        read = self.get()
        values = read.to_numpy(zero_copy_only=False) if isinstance(read, pa.Array) else read
        return np.array(values, dtype, copy=bool(copy)) if copy else np.asarray(values, dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **more: Any) -> Any:
        more.pop("out", None)  # `state.visits += 1` assigns the result
        arrays = [np.asarray(operand) if isinstance(operand, ValueColumn) else operand for operand in inputs]
        return getattr(ufunc, method)(*arrays, **more)


class ReducingColumn(HeldColumn):
    """A reducing state of many keys."""

    def add(self, values: Any, where: Any = None) -> None:
        """Merge a value per event into the state of its key, in the order of the events.

        Args:
            values: An array with one value per event.
            where: A mask of the events to include, or None for all events.

        Raises:
            Invalid: An included value is null, or the result does not match the type.
        """
        state, rows = self._cells.state, len(self._view.position)
        column = arrow_of(values, state.type, rows, self._where)
        mask = mask_of(where, rows, self._where)
        position = self._view.position
        if mask is not None:
            column, position = column.filter(pa.array(mask)), position[mask]
        if column.null_count:
            raise Invalid(
                "a value to add is null",
                code="HF-E2507",
                where=self._where,
                hint=f"exclude null values: state.{state.name}.add(values, where=mask)",
            )
        cells, alive, stamps = self._alive()
        written = np.zeros(self._view.size, np.bool_)
        written[position] = True
        counts, now = self._in_force(alive, position, mask)
        if counts is not None:
            column, position = column.filter(pa.array(counts)), position[counts]
        merged = self._by_ufunc(cells, alive, position, column)
        if merged is None:
            merged = self._by_loop(cells, alive, position, column)
        if not written.all():
            merged = pc.if_else(pa.array(written), merged, cells)
        self._put(merged, self._stamped(written, alive, stamps, now))

    def get(self, default: Any = None) -> Any:
        """Return the merged values: a numpy array if a default is given for unset ones, otherwise an Arrow
        array.
        """
        return column_for_handler(self._read(), default)

    def _by_ufunc(
        self, cells: pa.Array, alive: Mask, position: Positions, column: pa.Array
    ) -> pa.Array | None:
        """Merge the values as arrays; return None if the result could differ from merging value by value."""
        state = self._cells.state
        ufunc = ufunc_of(state.function)
        if ufunc is None or not (kinds.is_integer(state.type) or kinds.is_floating(state.type)):
            return None
        held, values = numbers_of(cells), numbers_of(column)
        if held.dtype.kind == "i":
            if ufunc is np.add and _largest(held) + _largest(values) * len(values) >= 2**63:
                return None
        elif state.function in (min, max) and (np.isnan(held).any() or np.isnan(values).any()):
            return None
        held = held.copy()
        first = first_rows(position, len(held))
        fresh = np.flatnonzero(~alive & (first >= 0))
        if len(fresh):
            held[fresh] = values[first[fresh]]
            rest = np.ones(len(values), np.bool_)
            rest[first[fresh]] = False
            position, values = position[rest], values[rest]
        with np.errstate(all="ignore"):  # NaN and infinity are treated as values
            ufunc.at(held, position, values)
        return arrow_of(pa.array(held, mask=~alive & (first < 0)), state.type, len(held), self._where)

    def _by_loop(self, cells: pa.Array, alive: Mask, position: Positions, column: pa.Array) -> pa.Array:
        function: Callable[[Any, Any], Any] = self._cells.state.function or add
        held = values_of(cells)
        for at in np.flatnonzero(~alive).tolist():
            held[at] = None
        for at, value in zip(position.tolist(), values_of(column), strict=True):
            before = held[at]
            held[at] = value if before is None else function(before, value)
            if held[at] is None:
                raise gave_nothing(self._cells.state.name)
        return column_at(held, self._cells.state.type, self._where)


class AggregatingColumn(HeldColumn):
    """An aggregating state of many keys, computed value by value in Python."""

    def add(self, values: Any, where: Any = None) -> None:
        """Add a value per event to the accumulator of its key, in the order of the events."""
        rows = len(self._view.position)
        if isinstance(values, np.ndarray):
            values = pa.array(values)
        given = values_of(whole(values)) if isinstance(values, (pa.Array, pa.ChunkedArray)) else list(values)
        if len(given) != rows:
            raise another_length(given, rows, self._where)
        mask = mask_of(where, rows, self._where)
        aggregate, thaw = self._cells.state.aggregate, thawer(self._cells.state.type)
        if aggregate is None:
            raise Internal(
                "an aggregating state has no aggregate",
                code="HF-E9035",
                where=self._where,
                hint="please report this",
            )
        cells, alive, stamps = self._alive()
        held = values_of(cells, frozen=False)
        for at in np.flatnonzero(~alive).tolist():
            held[at] = None
        chosen = np.arange(rows) if mask is None else np.flatnonzero(mask)
        position = self._view.position[chosen]
        written = np.zeros(self._view.size, np.bool_)
        written[position] = True
        counts, now = self._in_force(alive, position, mask)
        if counts is not None:
            chosen = chosen[counts]
        for row in chosen.tolist():
            at = self._view.position[row]
            before = aggregate.create() if held[at] is None else held[at]
            after = aggregate.add(before if thaw is None else thaw(before), given[row])
            if after is None:
                raise gave_nothing(self._cells.state.name)
            held[at] = after if thaw is None else thaw(after)
        merged = pc.if_else(pa.array(written), column_at(held, self._cells.state.type, self._where), cells)
        self._put(merged, self._stamped(written, alive, stamps, now))

    def get(self) -> list[Any]:
        """Return the aggregates' results; None for a key without a value."""
        aggregate = self._cells.state.aggregate
        result = aggregate.result if aggregate is not None else operator.pos
        return [None if held is None else result(held) for held in values_of(self._read(), frozen=False)]


def _largest(values: NDArray[Any]) -> int:
    return max(int(values.max()), -int(values.min()), 0) if len(values) else 0


class Pool:
    """The elements of one list or map state that a pass has read or written, in no particular order.

    Stored elements are read at the first use; appending to a list does not read them. An element that is both
    added and removed in the pass is not written.
    """

    def __init__(self, state: State, clocks: Clocks) -> None:
        self.state = state
        self.rule: TtlRule | None = rule_of(state, clocks)
        self._touched: Touched | None = None

    def begin(self, touched: Touched, moment: Moment) -> None:
        """Start a pass."""
        self._touched = touched
        self._loaded = False
        self._next: NDArray[np.int64] | None = None
        self._wrote = np.zeros(touched.size, np.bool_)
        self.position: Positions = np.zeros(0, np.int64)
        self.slot: Positions = np.zeros(0, np.int64)
        self.live: Mask = np.zeros(0, np.bool_)
        self.stored: Mask = np.zeros(0, np.bool_)
        self.dirty: Mask = np.zeros(0, np.bool_)
        self.t: NDArray[np.int64] = np.zeros(0, np.int64)
        self.k: pa.Array | None = None if self.state.key_type is None else pa.array([], self.state.key_type)
        self.v: pa.Array = pa.array([], self.state.type)
        if self.rule is not None:
            self.rule.begin(moment)

    def load(self) -> None:
        """Read the stored elements and put them before those added in this pass."""
        if self._loaded or self._touched is None:
            return
        self._loaded = True
        elements = self._touched.elements(self.state.name)
        rows, count = elements.rows, elements.rows.num_rows
        position = np.repeat(np.arange(self._touched.size), np.diff(elements.starts))
        self.position = np.concatenate([position, self.position])
        self.slot = np.concatenate([numbers_of(whole(rows.column("slot"))), self.slot])
        self.live = np.concatenate([np.ones(count, np.bool_), self.live])
        self.stored = np.concatenate([np.ones(count, np.bool_), self.stored])
        self.dirty = np.concatenate([np.zeros(count, np.bool_), self.dirty])
        stamps = np.zeros(count, np.int64)
        if self.rule is not None:
            stamps = numbers_of(whole(rows.column("t")).fill_null(self.rule.origin))
        self.t = np.concatenate([stamps, self.t])
        self.v = pa.concat_arrays([whole(rows.column("v")), self.v])
        if self.k is not None:
            self.k = pa.concat_arrays([whole(rows.column("k")), self.k])

    def append(
        self, position: Positions, values: pa.Array, keys: pa.Array | None, stamps: NDArray[np.int64] | int
    ) -> None:
        """Add elements; those of one key get slots in the given order."""
        count = len(position)
        if not count or self._touched is None:
            return
        if self._next is None:
            self._next = numbers_of(whole(self._touched.stored(f"{SLOT_PREFIX}{self.state.name}"))).copy()
        order = np.argsort(position, kind="stable")
        ordered = position[order]
        starts = starts_of(ordered)
        rank = np.arange(count) - np.repeat(starts, np.diff(np.append(starts, count)))
        slot = np.empty(count, np.int64)
        slot[order] = self._next[ordered] + rank
        np.add.at(self._next, position, 1)
        self._wrote[position] = True
        self.position = np.concatenate([self.position, position])
        self.slot = np.concatenate([self.slot, slot])
        self.live = np.concatenate([self.live, np.ones(count, np.bool_)])
        self.stored = np.concatenate([self.stored, np.zeros(count, np.bool_)])
        self.dirty = np.concatenate([self.dirty, np.ones(count, np.bool_)])
        self.t = np.concatenate([self.t, np.broadcast_to(np.asarray(stamps, np.int64), count)])
        self.v = pa.concat_arrays([self.v, values])
        if self.k is not None and keys is not None:
            self.k = pa.concat_arrays([self.k, keys])

    def remove(self, rows: Mask) -> None:
        """Remove the elements in a mask."""
        self.live &= ~rows

    def columns(self) -> dict[str, pa.Array]:
        """Return the column of next slots if it changed; null for an empty list or map."""
        gone = self.stored & ~self.live
        if self._touched is None or not (gone.any() or self._wrote.any()):
            return {}
        name = f"{SLOT_PREFIX}{self.state.name}"
        stored = whole(self._touched.stored(name))
        following = self._next if self._next is not None else numbers_of(stored)
        changed = self._wrote.copy()
        changed[self.position[gone]] = True
        left = np.zeros(len(changed), np.bool_)
        left[self.position[self.live]] = True
        # After an append, the list is not empty, even if the stored elements were not read.
        at = np.flatnonzero(changed)
        return {name: placed(stored, at, pa.array(following[at], mask=~left[at]))}

    def elements(self) -> pa.Table | None:
        """Return the writes to the side table, or None without writes."""
        dead = self.stored & ~self.live
        rows = np.flatnonzero(dead | (self.dirty & self.live))
        if not len(rows):
            return None
        at, gone = pa.array(rows), pa.array(dead[rows])
        columns = {"position": pa.array(self.position[rows]), "slot": pa.array(self.slot[rows]), "dead": gone}
        if self.k is not None:
            columns["k"] = self.k.take(at)
        columns["v"] = self.v.take(pa.array(rows, mask=dead[rows]))
        if self.rule is not None:
            columns["t"] = pa.array(self.t[rows], mask=dead[rows])
        return pa.table(columns)


class ElementsColumn:
    """The base class for columns of lists and maps."""

    def __init__(self, pool: Pool, view: View) -> None:
        self._pool = pool
        self._view = view
        self._where = f"state {pool.state.name}"

    def clear(self, where: Any = None) -> None:
        """Empty the lists or maps of the keys in a mask, or of all keys."""
        mask = mask_of(where, self._view.size, self._where)
        self._pool.load()
        chosen = self._mine()
        if mask is not None:
            chosen &= np.append(mask, False)[self._local()]
        self._pool.remove(chosen)

    def _local(self) -> Positions:
        """Return the key of each element, as an index among the call's keys; the number of keys for other
        keys.
        """
        view, position = self._view, self._pool.position
        if view.keys is None:
            return position
        at = np.minimum(np.searchsorted(view.keys, position), view.size - 1)
        return np.where(view.keys[at] == position, at, view.size)

    def _mine(self) -> Mask:
        """Return a mask of the live elements of the call's keys."""
        mine: Mask = self._pool.live & (self._local() < self._view.size)
        return mine

    def _read(self) -> Mask:
        """Return a mask of the visible elements; remove elements and set timestamps, as a read does."""
        pool = self._pool
        pool.load()
        mine, rule = self._mine(), pool.rule
        if rule is None:
            return mine
        alive = mine & ~(pool.t <= rule.cutoff)
        pool.remove(mine & ~alive & self._leaves(alive, rule))
        if rule.refreshes and alive.any():
            now: NDArray[np.int64] | int = rule.clock.stamp
            if rule.event:
                times = np.append(np.broadcast_to(np.asarray(self._view.key_times), self._view.size), 0)
                now = np.maximum(pool.t, times[self._local()])
            pool.t = np.where(alive, now, pool.t)
            pool.dirty |= alive
        return mine if rule.shows_expired else alive

    def _leaves(self, alive: Mask, rule: TtlRule) -> Mask:  # noqa: ARG002 - lists ask for the rule
        """Return a mask of the expired elements that a read removes."""
        return np.ones(len(alive), np.bool_)

    def _row_now(self, mask: Mask | None) -> NDArray[np.int64] | int:
        """Return the timestamp of a write for each row."""
        rule = self._pool.rule
        if rule is None or not rule.event:
            return rule.clock.stamp if rule is not None else 0
        times = self._view.row_times
        return times if isinstance(times, int) or mask is None else times[mask]

    def _ordered(self, rows: Mask) -> tuple[pa.Array, pa.Array]:
        """Return the offsets by key, and the indices of the elements, ordered by key and slot."""
        at = np.flatnonzero(rows)
        local = self._local()[at]
        order = np.lexsort((self._pool.slot[at], local))
        counts = np.bincount(local, minlength=self._view.size)
        return pa.array(offsets_of(counts), pa.int32()), pa.array(at[order])


class ListColumn(ElementsColumn):
    """A list state of many keys."""

    def append(self, values: Any, where: Any = None) -> None:
        """Append a value per event, or per event in a mask, to the list of its key."""
        rows = len(self._view.position)
        column = arrow_of(values, self._pool.state.type, rows, self._where)
        mask = mask_of(where, rows, self._where)
        position = self._view.whole_positions(self._view.position)
        if mask is not None:
            column, position = column.filter(pa.array(mask)), position[mask]
        self._pool.append(position, column, None, self._row_now(mask))

    def get(self) -> pa.Array:
        """Return the lists of all keys as an Arrow array of lists."""
        pool = self._pool
        offsets, at = self._ordered(self._read())
        return pa.ListArray.from_arrays(offsets, pool.v.take(at), pa.list_(pool.state.type))

    def _leaves(self, alive: Mask, rule: TtlRule) -> Mask:
        """Return a mask of the elements to remove, by the same rule as `ttl.read_list`."""
        local = self._local()
        any_alive = np.zeros(self._view.size + 1, np.bool_)
        any_alive[local[alive]] = True
        leaves: Mask = ~any_alive[local] | rule.refreshes
        return leaves


class MapColumn(ElementsColumn):
    """A map state of many keys."""

    def put(self, keys: Any, values: Any, where: Any = None) -> None:
        """Set an entry per event, or per event in a mask; later entries with the same key replace earlier
        ones.

        Raises:
            Invalid: The key of an entry is null, or an array has the wrong type or length.
        """
        pool, rows = self._pool, len(self._view.position)
        k = arrow_of(keys, pool.state.key_type, rows, f"{self._where}, keys")
        v = arrow_of(values, pool.state.type, rows, f"{self._where}, values")
        mask = mask_of(where, rows, self._where)
        position = self._view.whole_positions(self._view.position)
        stamps = np.broadcast_to(
            np.asarray(self._row_now(mask), np.int64), rows if mask is None else mask.sum()
        )
        if mask is not None:
            k, v, position = k.filter(pa.array(mask)), v.filter(pa.array(mask)), position[mask]
        k = _as_stored(k)
        if k.null_count:
            raise Invalid(
                "a key to put into a map is null",
                code="HF-E2508",
                where=f"{self._where}, keys",
                hint=f"exclude events without a key: state.{pool.state.name}.put(keys, values, where=mask)",
            )
        if not len(position):
            return
        pool.load()
        known, group = self._grouped(position, k)
        groups = int(group.max()) + 1
        first, last = first_rows(group, groups), last_rows(group, groups)
        newest = latest(group, stamps, groups)
        owner = known[first]
        old, new = np.flatnonzero(owner >= 0), np.flatnonzero(owner < 0)
        pool.v = placed(pool.v, owner[old], v.take(pa.array(last[old])))
        pool.dirty[owner[old]] = True
        if pool.rule is not None:
            before = pool.t[owner[old]]
            pool.t[owner[old]] = np.maximum(before, newest[old]) if pool.rule.event else stamps[last[old]]
        new = new[np.argsort(first[new], kind="stable")]
        at = pa.array(last[new])
        pool.append(position[first[new]], v.take(at), k.take(at), newest[new])

    def get(self) -> pa.Array:
        """Return the maps of all keys as an Arrow array of maps."""
        pool = self._pool
        offsets, at = self._ordered(self._read())
        kind = pa.map_(pool.state.key_type, pool.state.type)
        keys = pool.k.take(at) if pool.k is not None else None
        return pa.MapArray.from_arrays(offsets, keys, pool.v.take(at), kind)

    def _grouped(self, position: Positions, keys: pa.Array) -> tuple[Positions, Positions]:
        """Return the live element for each new entry, or -1, and a number for each pair of key and entry."""
        pool = self._pool
        at = np.flatnonzero(pool.live)
        held = _as_stored(pool.k.take(pa.array(at))) if pool.k is not None else keys.slice(0, 0)
        codes = pa.concat_arrays([held, keys]).dictionary_encode()
        ids = np.concatenate([pool.position[at], position]) * (len(codes.dictionary) + 1)
        ids += codes.indices.to_numpy(zero_copy_only=False)
        _, numbered = np.unique(ids, return_inverse=True)
        owner = np.full(int(numbered.max()) + 1, -1)
        owner[numbered[: len(at)]] = at
        pool.live[at[owner[numbered[: len(at)]] != at]] = False  # entries of one key, by former versions
        mine = numbered[len(at) :]
        _, group = np.unique(mine, return_inverse=True)
        return owner[mine], group


def _as_stored(keys: pa.Array) -> pa.Array:
    """Return keys normalized so that equal keys have equal bits: NaN equals NaN, and -0.0 becomes 0.0."""
    if not kinds.is_floating(keys.type):
        return keys
    nan, zero = pa.scalar(float("nan"), keys.type), pa.scalar(0.0, keys.type)
    return pc.if_else(pc.is_nan(keys), nan, pc.add(keys, zero))
