"""The `state` argument of `on_batch`: the states of all keys of a call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from holdfast.errors import Invalid
from holdfast.worker.arrays import first_rows, last_rows, placed, whole
from holdfast.worker.declarations.handler_arguments import Clock
from holdfast.worker.declarations.state_descriptors import StateKind
from holdfast.worker.interface import DUE_EVENT, DUE_PROCESSING, TIMERS, Moment, Shared, Touched
from holdfast.worker.runtime.context import NO_BROADCAST
from holdfast.worker.runtime.table_columns import (
    AggregatingColumn,
    ListColumn,
    MapColumn,
    Pool,
    ReducingColumn,
    TableCells,
    ValueColumn,
    View,
    another_length,
    is_plain_number,
    mask_of,
    numbers_of,
    valid,
)
from holdfast.worker.runtime.timers import (
    BEFORE_ALL,
    EVENT,
    PROCESSING,
    decode,
    due_in_order,
    due_keys,
    encode_all,
    encode_keys,
    letter_of,
    ms_of,
    no_watermark,
    only,
)
from holdfast.worker.runtime.ttl import times_ms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdfast.worker.runtime.table_columns import Positions


class Fired:
    """The due timers, ordered by key and due time.

    Attributes:
        position: The index of each timer's key.
        key: The clock and name of each timer.
        at: The due time of each timer, in epoch milliseconds.
    """

    def __init__(self, fired: list[tuple[int, int, str]]) -> None:
        self.position: Positions = np.array([timer[0] for timer in fired], np.int64)
        self.at: NDArray[np.int64] = np.array([timer[1] for timer in fired], np.int64)
        self.key = [timer[2] for timer in fired]

    def event_times(self, watermark_ms: int) -> NDArray[np.int64]:
        """Return the event-time timestamps of writes: a timer's due time, or the watermark for
        processing-time timers.
        """
        is_event = np.array([key[0] == "e" for key in self.key], np.bool_)
        return np.where(is_event, self.at, watermark_ms)

    def table(self, keys: pa.Table) -> pa.Table:
        """Return the timers as a table for the handler: the key columns, `name`, `clock` and `at`."""
        timers = keys.take(pa.array(self.position))
        clocks = [EVENT if key[0] == "e" else PROCESSING for key in self.key]
        timers = timers.append_column("name", pa.array([key[1:] for key in self.key], pa.string()))
        timers = timers.append_column("clock", pa.array(clocks, pa.string()))
        return timers.append_column("at", pa.array(self.at * 1_000).cast(pa.timestamp("us", "UTC")))


class TimerColumns:
    """The timers of all keys of a pass, in columns."""

    def __init__(self, touched: Touched, moment: Moment) -> None:
        self._event_limit = BEFORE_ALL if moment.watermark_ms is None else moment.watermark_ms
        self._processing_limit = moment.now_ms
        self._texts = whole(touched.stored(TIMERS))
        self._event = whole(touched.stored(DUE_EVENT))
        self._processing = whole(touched.stored(DUE_PROCESSING))
        self._changed = False

    def advance(self, watermark_ms: int) -> None:
        """Make the timers in event time up to a later watermark due."""
        self._event_limit = max(self._event_limit, watermark_ms)

    def set(self, key: str, keys: Positions, at: NDArray[np.int64]) -> None:
        """Set a timer of some keys; a key with other timers is slower, because its timers are decoded
        individually.

        Args:
            key: The clock and name of the timer.
            keys: The indices of the keys.
            at: The due time of each key, in epoch milliseconds.
        """
        if not len(keys):
            return
        single = only(self._texts.take(pa.array(keys)), key)
        times, none = pa.array(at[single]), pa.nulls(int(single.sum()), pa.int64())
        due = (times, none) if key[0] == "e" else (none, times)
        self._place(keys[single], encode_all(key, times), *due)
        self._one_by_one(keys[~single], at[~single].tolist(), key)

    def cancel(self, key: str, keys: Positions) -> None:
        """Cancel a timer of some keys, if it is set."""
        texts = self._texts.take(pa.array(keys))
        single = only(texts, key)
        none = pa.nulls(int(single.sum()), pa.int64())
        self._place(keys[single], none.cast(pa.string()), none, none)
        self._one_by_one(keys[~single], [None] * int((~single).sum()), key)

    def take_due(self) -> Fired | None:
        """Remove all due timers and return them, or return None if no timer is due."""
        limits = (self._event_limit, self._processing_limit)
        keys = np.flatnonzero(due_keys((self._event, self._processing), limits))
        if not len(keys):
            return None
        fired: list[tuple[int, int, str]] = []
        left = []
        for key, text in zip(keys.tolist(), self._texts.take(pa.array(keys)).to_pylist(), strict=True):
            timers = decode(text)
            for at, name in due_in_order(timers, self._event_limit, self._processing_limit):
                fired.append((key, at, name))
                del timers[name]
            left.append(timers)
        self._place(keys, *encode_keys(left))
        return Fired(fired)

    def columns(self) -> dict[str, pa.Array]:
        """Return the timer columns of the row table; empty if no timer was set, cancelled or fired."""
        if not self._changed:
            return {}
        return {TIMERS: self._texts, DUE_EVENT: self._event, DUE_PROCESSING: self._processing}

    def _one_by_one(self, keys: Positions, times: list[Any], key: str) -> None:
        """Set a timer individually for each key; a time of None cancels the timer."""
        if not len(keys):
            return
        changed = []
        for text, at in zip(self._texts.take(pa.array(keys)).to_pylist(), times, strict=True):
            timers = decode(text)
            timers.pop(key, None)
            if at is not None:
                timers[key] = at
            changed.append(timers)
        self._place(keys, *encode_keys(changed))

    def _place(self, keys: Positions, texts: pa.Array, event: pa.Array, processing: pa.Array) -> None:
        if len(keys):
            self._changed = True
            self._texts = placed(self._texts, keys, texts)
            self._event = placed(self._event, keys, event)
            self._processing = placed(self._processing, keys, processing)


_KINDS: dict[StateKind, Any] = {
    StateKind.VALUE: ValueColumn,
    StateKind.REDUCING: ReducingColumn,
    StateKind.AGGREGATING: AggregatingColumn,
    StateKind.LIST: ListColumn,
    StateKind.MAP: MapColumn,
}
_COLUMNS = tuple(_KINDS.values())


class StateTable:
    """The states of the keys of one call, in columns: `state.visits` or `state["visits"]`.

    Handlers of an `hf.KeyedTable` get it as `state`: `on_batch` with the keys that have events, `on_timers`
    with the keys that have timers in the table. Do not use it after the handler has returned.

    Attributes:
        size: The number of keys.
        position: The key of each event or timer, as an index into `keys` and into the arrays of every state.
        now_ms: The batch's processing time in epoch milliseconds.
        watermark_ms: The batch's watermark in epoch milliseconds, or None without one.

    Example:
        import pyarrow as pa

        from holdfast.testing import Harness


        class Visits(hf.KeyedTable):
            visits = hf.value("long", default=0)

            def on_batch(self, events: pa.Table, state: hf.StateTable) -> pa.Table:
                state.visits += state.counts()
                return state.table(visits=state.visits)


        shop = Harness(
            Visits(), by="customer", events="customer string", output="customer string, visits long"
        )
        assert shop.send({"customer": "ann"}, {"customer": "ann"}) == [{"customer": "ann", "visits": 2}]
    """

    __slots__ = (
        "_all_keys",
        "_columns",
        "_default_clock",
        "_keys",
        "_rows",
        "_shared",
        "_timers",
        "_view",
        "now_ms",
        "position",
        "size",
        "watermark_ms",
    )

    def __init__(
        self,
        view: View,
        rows: pa.Table,
        all_keys: pa.Table,
        states: dict[str, TableCells | Pool],
        timers: TimerColumns | None,
        default_clock: str,
        moment: Moment,
        shared: Shared | None = None,
    ) -> None:
        put = object.__setattr__
        put(self, "_view", view)
        put(self, "_rows", rows)
        put(self, "_all_keys", all_keys)
        put(self, "_keys", None)
        put(self, "_timers", timers)
        put(self, "_shared", shared)
        put(self, "_default_clock", default_clock)
        put(self, "size", view.size)
        put(self, "position", view.position)
        put(self, "now_ms", moment.now_ms)
        put(self, "watermark_ms", moment.watermark_ms)
        columns = {name: _KINDS[cells.state.kind](cells, view) for name, cells in states.items()}
        put(self, "_columns", columns)

    @property
    def keys(self) -> pa.Table:
        """Return the key columns, one row per key."""
        if self._keys is None:
            chosen = self._view.keys
            taken = self._all_keys if chosen is None else self._all_keys.take(pa.array(chosen))
            object.__setattr__(self, "_keys", taken)
        return self._keys

    @property
    def broadcast(self) -> pa.Table:
        """Return the rows of the broadcast stream, in the order of their first arrival."""
        if self._shared is None:
            raise Invalid(
                "no broadcast stream is available to the handler", code="HF-E2486", hint=NO_BROADCAST
            )
        return self._shared.table

    def __getattr__(self, name: str) -> Any:
        if name in StateTable.__slots__:
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> Any:
        try:
            return self._columns[name]
        except KeyError:
            names = ", ".join(self._columns) or "none"
            raise AttributeError(f"unknown state {name!r}; expected {names}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        column = self[name]
        if value is column:
            return
        if not isinstance(column, ValueColumn):
            raise AttributeError(f"state.{name} cannot be assigned: it is not a value state")
        column.set(value)

    def clear(self, where: Any = None) -> None:
        """Clear all states of the keys in a mask, or of all keys; timers remain."""
        for column in self._columns.values():
            column.clear(where)

    def counts(self) -> NDArray[np.int64]:
        """Return the number of events of each key."""
        return np.bincount(self.position, minlength=self.size).astype(np.int64)

    def sums(self, column: Any) -> NDArray[Any]:
        """Return the sum per key of a column, or of an array with one value per event; nulls are ignored.

        Raises:
            Invalid: The values are not numeric, or a sum of integers may overflow 64 bits.
        """
        values, name = self._values(column)
        _check_numbers(values, name)
        numbers = numbers_of(values)
        sums = np.zeros(self.size, numbers.dtype)
        if numbers.dtype.kind == "i" and len(numbers):
            largest = max(int(numbers.max()), -int(numbers.min()))
            if largest * len(numbers) >= 2**63:
                raise Invalid(
                    "the sum of integers may overflow 64 bits",
                    code="HF-E2497",
                    where=name,
                    hint="cast the values to double first",
                )
        np.add.at(sums, self.position, numbers)
        return sums

    def first(self, column: Any, default: Any = None) -> Any:
        """Return the value of a column in the first event of each key; for nulls see `max`."""
        return self._picked(column, first_rows(self.position, self.size), default)

    def last(self, column: Any, default: Any = None) -> Any:
        """Return the value of a column in the last event of each key; for nulls see `max`."""
        return self._picked(column, last_rows(self.position, self.size), default)

    def min(self, column: Any, default: Any = None) -> Any:
        """Return the smallest value of each key; NaN is larger than every number; for nulls see `max`."""
        return self._extreme(column, np.fmin, default)

    def max(self, column: Any, default: Any = None) -> Any:
        """Return the largest value of each key, ignoring nulls.

        Numbers are returned as a numpy array, so keys without a value need a default; other types are
        returned as an Arrow array.

        Raises:
            Invalid: A key has no number, and no default is given.
        """
        return self._extreme(column, np.maximum, default)

    def timer(self, at: Any, name: str = "", clock: Clock | None = None, where: Any = None) -> None:
        """Set a timer of each key, or of those in a mask; an existing timer with the same name and clock is
        moved.

        Args:
            at: The due times: epoch milliseconds or Arrow timestamps, one per key or one for all keys.
            name: The name of the timer, unique per key and clock.
            clock: The clock of the timer: "event" or "processing"; by default "event" if the streams have a
                watermark.
            where: A mask of the keys, or None for all keys.
        """
        timers, key = self._timer_key(name, clock, setting=True)
        times, chosen = self._times(at), self._chosen(where)
        for time in (times[chosen].min(), times[chosen].max()) if len(chosen) else ():
            ms_of(int(time))
        timers.set(key, self._view.whole_positions(chosen), times[chosen])

    def cancel_timer(self, name: str = "", clock: Clock | None = None, where: Any = None) -> None:
        """Cancel a timer of each key, or of those in a mask."""
        timers, key = self._timer_key(name, clock)
        timers.cancel(key, self._view.whole_positions(self._chosen(where)))

    def table(self, **columns: Any) -> pa.Table:
        """Return a table of the key columns and further columns, each with one value per key."""
        made = self.keys
        for name, values in columns.items():
            given = values.get() if isinstance(values, _COLUMNS) else values
            array = given if isinstance(given, (pa.Array, pa.ChunkedArray)) else pa.array(given)
            if len(array) != self.size:
                raise another_length(array, self.size, name)
            at = made.column_names.index(name) if name in made.column_names else -1
            made = made.set_column(at, name, array) if at >= 0 else made.append_column(name, array)
        return made

    def _chosen(self, where: Any) -> Positions:
        """Return the indices of the keys in a mask, or of all keys."""
        mask = mask_of(where, self.size, "where")
        return np.arange(self.size) if mask is None else np.flatnonzero(mask)

    def _values(self, column: Any) -> tuple[pa.Array, str]:
        """Return an event column by name, or an array with one value per event."""
        if isinstance(column, str):
            if column not in self._rows.column_names:
                raise Invalid(
                    "unknown column",
                    code="HF-E2498",
                    found=column,
                    expected=", ".join(self._rows.column_names),
                    hint="name a column of the stream, or pass an array with one value per event",
                )
            return whole(self._rows.column(column)), f"column {column}"
        array = pa.array(column) if not isinstance(column, (pa.Array, pa.ChunkedArray)) else whole(column)
        if len(array) != len(self.position):
            raise another_length(array, len(self.position), "an array of values")
        return array, "an array"

    def _picked(self, column: Any, at: NDArray[np.int64], default: Any) -> Any:
        values, name = self._values(column)
        return _result(values.take(pa.array(at, mask=at < 0)), default, name)

    def _extreme(self, column: Any, ufunc: np.ufunc, default: Any) -> Any:
        values, name = self._values(column)
        if kinds.is_temporal(values.type):
            numbers = values.cast(pa.int64()) if values.type.bit_width == 64 else values.cast(pa.int32())
            extremes = self._extreme_of(numbers, ufunc).cast(numbers.type).cast(values.type)
            return _result(extremes, default, name)
        _check_numbers(values, name)
        filler = int(default) if isinstance(default, bool) else default
        return _result(self._extreme_of(values, ufunc), filler, name)

    def _extreme_of(self, values: pa.Array, ufunc: np.ufunc) -> pa.Array:
        there = valid(values)
        numbers, position = numbers_of(values)[there], self.position[there]
        extremes = np.zeros(self.size, numbers.dtype)
        extremes[position] = numbers
        with np.errstate(all="ignore"):  # NaN is treated as a value
            ufunc.at(extremes, position, numbers)
        none = np.ones(self.size, np.bool_)
        none[position] = False
        return pa.array(extremes, mask=none)

    def _times(self, at: Any) -> NDArray[np.int64]:
        if isinstance(at, (pa.Array, pa.ChunkedArray)):
            if at.null_count:
                raise Invalid(
                    "the time of a timer is null",
                    code="HF-E2499",
                    hint="exclude the keys without a time: where=mask",
                )
            given = times_ms(at, 0) if kinds.is_timestamp(at.type) else numbers_of(whole(at.cast(pa.int64())))
        elif isinstance(at, np.ndarray):
            given = at.astype("M8[ms]").astype(np.int64) if at.dtype.kind == "M" else _whole_numbers(at)
        else:
            return np.full(self.size, ms_of(at))
        if len(given) != self.size:
            raise another_length(given, self.size, "the times of a timer")
        return given

    def _timer_key(
        self, name: str, clock: Clock | None, *, setting: bool = False
    ) -> tuple[TimerColumns, str]:
        if self._timers is None:
            raise Invalid(
                "the processor cannot use timers, because it has no on_timers",
                code="HF-E2500",
                hint="define on_timers(self, timers, state)",
            )
        if setting and clock == EVENT and self._default_clock != EVENT:
            raise no_watermark()
        return self._timers, letter_of(self._default_clock if clock is None else clock) + name


def _check_numbers(values: pa.Array, name: str) -> None:
    if not is_plain_number(values.type):
        raise Invalid(
            "the values are not numeric",
            code="HF-E2501",
            where=name,
            found=str(values.type),
            hint="cast the values first: events.column(name).cast('double')",
        )


def _result(column: pa.Array, default: Any, name: str) -> Any:
    if not is_plain_number(column.type):
        return column if default is None else column.fill_null(default)
    if column.null_count and default is None:
        raise Invalid(
            "some keys have no value in the column",
            code="HF-E2502",
            where=name,
            found=f"null for {column.null_count} of {len(column)} keys",
            hint="pass a default, such as default=0 or default=float('nan')",
        )
    filled = pc.fill_null(column, default) if column.null_count else column
    return filled.to_numpy(zero_copy_only=False)


def _whole_numbers(at: NDArray[Any]) -> NDArray[np.int64]:
    if at.dtype.kind not in "iu":
        raise Invalid(
            "the times of timers are not epoch milliseconds",
            code="HF-E2503",
            found=str(at.dtype),
            expected="int64",
            hint="convert the times with at.astype('int64'), or pass numpy datetimes",
        )
    return at.astype(np.int64)


# The names that no state of a `KeyedTable` can have, because `state.<name>` has a different meaning.
TAKEN_NAMES: frozenset[str] = frozenset(name for name in dir(StateTable) if not name.startswith("_"))
