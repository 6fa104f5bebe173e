"""Values and accumulators of many keys at once: what `state.visits` is in `on_batch`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from numpy.lib.mixins import NDArrayOperatorsMixin

from holdfast.errors import Internal, Invalid
from holdfast.worker.arrays import first_rows, last_rows, latest, placed, whole
from holdfast.worker.declarations.state_descriptors import State, add, ufunc_of
from holdfast.worker.interface import STAMP_PREFIX, VALUE_PREFIX, Moment, Touched
from holdfast.worker.runtime.event_rows import values_of
from holdfast.worker.runtime.row_state.handles import gave_nothing
from holdfast.worker.runtime.row_state.held_cells import thawer
from holdfast.worker.runtime.table_state.vectors import (
    another_length,
    arrow_of,
    column_at,
    mask_of,
    masked,
    numbers_of,
    shown,
    valid,
)
from holdfast.worker.runtime.ttl import Clocks, Rule, read, rule_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdfast.worker.runtime.table_state.vectors import Mask, Positions


_LOWEST = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class View:
    """The keys that one call is about, and its rows: events or timers.

    Attributes:
        keys: Their positions in the pass, ascending; None: all.
        size: How many they are.
        position: Which of them each row belongs to.
        row_times: The event time of each row.
        key_times: The latest event time among the rows of each key.
    """

    keys: Positions | None
    size: int
    position: Positions
    row_times: NDArray[np.int64] | int
    key_times: NDArray[np.int64] | int

    def of(self, column: pa.Array) -> pa.Array:
        """Give the cells of these keys."""
        return column if self.keys is None else column.take(pa.array(self.keys))

    def into(self, column: pa.Array, cells: pa.Array) -> pa.Array:
        """Give a column with the cells of these keys replaced."""
        return cells if self.keys is None else placed(column, self.keys, cells)

    def whole_positions(self, local: Positions) -> Positions:
        """Give positions among these keys as positions in the pass."""
        return local if self.keys is None else self.keys[local]


class TableCells:
    """A state's column of the row table during a pass, with its stamps."""

    def __init__(self, state: State, clocks: Clocks) -> None:
        self.state = state
        self.rule: Rule | None = rule_of(state, clocks)
        self._stored: pa.Array | None = None
        self._stored_stamps: pa.Array | None = None
        self._touched: Touched | None = None
        self.column: pa.Array = None
        self.stamps: pa.Array = None

    def begin(self, touched: Touched, moment: Moment) -> None:
        """Start a pass; nothing is read before a handler asks."""
        self._touched, self._stored = touched, None
        if self.rule is not None:
            self.rule.begin(moment)

    def open(self) -> None:
        """Have the column at hand."""
        if self._stored is not None:
            return
        if self._touched is None:
            raise RuntimeError("a table of state is good for one call only")
        self.column = self._stored = whole(self._touched.stored(f"{VALUE_PREFIX}{self.state.name}"))
        if self.rule is not None:
            self._stored_stamps = whole(self._touched.stored(f"{STAMP_PREFIX}{self.state.name}"))
            self.stamps = masked(self._stored_stamps.fill_null(self.rule.origin), valid(self.column))

    def columns(self) -> dict[str, pa.Array]:
        """The columns that changed."""
        if self._stored is None:
            return {}
        columns = {}
        if not self.column.equals(self._stored):
            columns[f"{VALUE_PREFIX}{self.state.name}"] = self.column
        if self.rule is not None and not self.stamps.equals(self._stored_stamps):
            columns[f"{STAMP_PREFIX}{self.state.name}"] = self.stamps
        return columns


class HeldColumn:
    """What the columns of values and accumulators have in common."""

    def __init__(self, cells: TableCells, view: View) -> None:
        self._cells = cells
        self._view = view
        self._where = f"state {cells.state.name}"

    def clear(self, where: Any = None) -> None:
        """Clear the state of the keys that a mask says; of all keys without one."""
        self._cells.open()
        mask = mask_of(where, self._view.size, self._where)
        keep = np.zeros(self._view.size, np.bool_) if mask is None else ~mask
        cells, view = self._cells, self._view
        self._put(masked(view.of(cells.column), keep), None)

    def _put(self, cells: pa.Array, stamps: NDArray[np.int64] | None) -> None:
        """Replace the view's cells, and their stamps where new ones are given."""
        held, view = self._cells, self._view
        held.column = view.into(held.column, cells)
        if held.rule is not None:
            now = pa.array(stamps) if stamps is not None else view.of(held.stamps)
            held.stamps = view.into(held.stamps, masked(now, valid(cells)))

    def _read(self) -> pa.Array:
        """Read the view's cells, with all that reading does to them."""
        held, view = self._cells, self._view
        held.open()
        cells = view.of(held.column)
        if held.rule is None:
            return cells
        reading = read(held.rule, valid(cells), numbers_of(view.of(held.stamps)), self._now())
        self._put(masked(cells, reading.kept), reading.stamps)
        return masked(cells, reading.shown)

    def _alive(self) -> tuple[pa.Array, Mask, NDArray[np.int64]]:
        """Give the view's cells without reading them: cells, which are alive, and their stamps."""
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
        """Give the stamps after writes to some keys."""
        rule = self._cells.rule
        if rule is None:
            return None
        now = self._now() if now is None else now
        return np.where(written, rule.stamps(np.where(alive, stamps, _LOWEST), now), stamps)

    def _in_force(
        self, alive: Mask, position: Positions, mask: Mask | None
    ) -> tuple[Mask | None, NDArray[np.int64] | int]:
        """Say which of a column of additions count, and give the stamp of each key after them.

        In event time an addition may be so old that what it made has expired before the next one comes,
        which then starts from scratch. So with nothing alive before, the first that counts is the first
        that is young enough, or the very last one.
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
    """A value of each key. It stands for its array in arithmetic: `state.visits + 1`.

    Assigning is `set`: `state.visits = state.visits + state.counts()`.
    """

    def get(self, default: Any = None) -> Any:
        """Give the values of all keys.

        Numbers with a default, declared or given here, come as numpy; everything else as Arrow, with
        null for a key that has none.
        """
        declared = self._cells.state.default
        return shown(self._read(), declared if default is None else default)

    def set(self, values: Any, where: Any = None) -> None:
        """Set the values of the keys that a mask says, or of all; null clears.

        Raises:
            Invalid: A value does not fit, or is null where the state has a default.
        """
        cells, alive, stamps = self._alive()
        state, size = self._cells.state, self._view.size
        new = arrow_of(values, state.type, size, self._where)
        mask = mask_of(where, size, self._where)
        given = valid(new)
        if state.default is not None and not (given if mask is None else given | ~mask).all():
            raise Invalid(
                "null cannot be set where there is a default",
                where=self._where,
                hint=f"clear with state.{state.name}.clear(mask)",
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
    """An accumulated value of each key."""

    def add(self, values: Any, where: Any = None) -> None:
        """Merge in a value of each event, those of a key in their order.

        Args:
            values: An array with a value an event.
            where: A mask of the events whose values count.

        Raises:
            Invalid: A value that counts is null, or the result does not fit the type.
        """
        state, rows = self._cells.state, len(self._view.position)
        column = arrow_of(values, state.type, rows, self._where)
        mask = mask_of(where, rows, self._where)
        position = self._view.position
        if mask is not None:
            column, position = column.filter(pa.array(mask)), position[mask]
        if column.null_count:
            raise Invalid(
                "there is nothing to add for an event: its value is null",
                where=self._where,
                hint=f"leave it out: state.{state.name}.add(values, where=mask)",
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
        """Give the accumulated values: as numpy where a default is given for unset ones, else as Arrow."""
        return shown(self._read(), default)

    def _by_ufunc(
        self, cells: pa.Array, alive: Mask, position: Positions, column: pa.Array
    ) -> pa.Array | None:
        """Merge whole arrays; None where that would not give what one value after the other gives."""
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
        with np.errstate(all="ignore"):  # NaN and infinity are values like others
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
    """An aggregate of each key, worked out value by value in Python."""

    def add(self, values: Any, where: Any = None) -> None:
        """Take in a value of each event, those of a key in their order."""
        rows = len(self._view.position)
        if isinstance(values, np.ndarray):
            values = pa.array(values)
        given = values_of(whole(values)) if isinstance(values, (pa.Array, pa.ChunkedArray)) else list(values)
        if len(given) != rows:
            raise another_length(given, rows, self._where)
        mask = mask_of(where, rows, self._where)
        aggregate, thaw = self._cells.state.aggregate, thawer(self._cells.state.type)
        if aggregate is None:
            raise Internal("the state has no aggregate", where=self._where)
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
        """Give the results, None for a key that has none."""
        aggregate = self._cells.state.aggregate
        result = aggregate.result if aggregate is not None else operator.pos
        return [None if held is None else result(held) for held in values_of(self._read(), frozen=False)]


def _largest(values: NDArray[Any]) -> int:
    return max(int(values.max()), -int(values.min()), 0) if len(values) else 0
