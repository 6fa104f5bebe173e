"""Running aggregates (`hf.running`) over the last interval of event time.

Sums are differences of exact running totals: numbers, including floating-point ones, are added as integers in
units of their smallest digit. Retired events leave no rounding error, and a result does not depend on the
order in which rows arrived.

Events are stored as they arrive, in one chunk per batch, until no later event can have them in its range.
Retired events stay in their chunk until they outnumber the others; then the key's chunks are merged into one.
So an event is written about twice, and a key stores at most twice the events of its range.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from holdfast.config.checks import one_of
from holdfast.config.units import Duration, parse_duration
from holdfast.errors import Invalid
from holdfast.stream.event_time import timed_stream
from holdfast.stream.keyed.keyed_stream import KEY_GROUPS, keyed
from holdfast.worker.arrays import latest, offsets_of, whole
from holdfast.worker.declarations.state_descriptors import KeyedTable, State, StateKind
from holdfast.worker.runtime.table_columns import numbers_of, valid
from holdfast.worker.runtime.timers import LAST_MS

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from holdfast.stream.measures import Measure

    Numbers = NDArray[np.int64]
    Mask = NDArray[np.bool_]

_LOWEST = np.iinfo(np.int64).min
_TOO_LARGE = 2**63


def ranges_before(position: Numbers, at: Numbers, asked: Numbers, size: int) -> tuple[Numbers, Numbers]:
    """Return, for each row in `asked`, the rows of its key in the time range that ends at that row.

    Args:
        position: The number of each row's key; rows are sorted by key and then by time.
        at: The time of each row, in microseconds.
        asked: The indices of the rows for which to return ranges.
        size: The length of the time range in microseconds; both ends are included.

    Returns:
        The index of the first row of each range, and the index after its last row. All rows of the key with
        the same time are included.
    """
    keys, times = position[asked], at[asked]
    first = np.maximum(times, _LOWEST + size) - size
    start = _rows_before(position, at, keys, first, same_time=False)
    return start, _rows_before(position, at, keys, times, same_time=True)


def aggregate(measure: Measure, column: pa.Array | None, start: Numbers, stop: Numbers) -> pa.Array:
    """Compute one aggregate over ranges of a column.

    Raises:
        Invalid: A sum overflows its type.
    """
    if column is None:
        return pa.array(stop - start)
    there = valid(column)
    counts = _over(there.astype(np.int64), start, stop)
    if measure.function == "count":
        return pa.array(counts)
    if measure.function in ("min", "max"):
        return _extremes(column, there, start, stop, largest=measure.function == "max")
    if kinds.is_floating(column.type):
        return _float_results(measure, numbers_of(column), counts, start, stop)
    units = _units(column, there)
    return _whole_results(measure, _totals(units, start, stop), counts)


def _rows_before(
    position: Numbers, at: Numbers, keys: Numbers, times: Numbers, *, same_time: bool
) -> Numbers:
    """Return the number of rows before each pair of key and time; with `same_time`, include that time."""
    rows = len(position)
    side = np.repeat([0, 1] if same_time else [1, 0], [rows, len(keys)])
    order = np.lexsort((side, np.concatenate([at, times]), np.concatenate([position, keys])))
    is_row = order < rows
    counts = np.empty(len(keys), np.int64)
    counts[order[~is_row] - rows] = np.cumsum(is_row)[~is_row]
    return counts


def _over(values: Numbers, start: Numbers, stop: Numbers) -> Numbers:
    """Return the sum of each range; totals may wrap around, but a difference within 64 bits is exact."""
    totals = offsets_of(values)
    sums: Numbers = totals[stop] - totals[start]
    return sums


def _totals(units: Numbers | list[int], start: Numbers, stop: Numbers) -> Numbers | list[int]:
    """Return the exact sum of each range, as a numpy array if all of them fit in 64 bits."""
    if not len(start):
        return np.zeros(0, np.int64)
    if isinstance(units, np.ndarray):
        largest = max(int(units.max()), -int(units.min()))
        if largest * int((stop - start).max()) < _TOO_LARGE:
            return _over(units, start, stop)
        units = units.tolist()
    totals = list(accumulate(units, initial=0))
    return [totals[b] - totals[a] for a, b in zip(start.tolist(), stop.tolist(), strict=True)]


def _units(column: pa.Array, there: Mask) -> Numbers | list[int]:
    """Return integers unchanged and decimals in units of their last digit; 0 for null."""
    if not kinds.is_decimal(column.type):
        return numbers_of(column)
    raw = np.frombuffer(column.buffers()[1], np.int64, 2 * len(column), 16 * column.offset).reshape(-1, 2)
    low, high = np.where(there, raw[:, 0], 0), np.where(there, raw[:, 1], 0)
    if (high == low >> 63).all():
        return low
    return [(h << 64) | b for h, b in zip(high.tolist(), low.view(np.uint64).tolist(), strict=True)]


def _whole_results(measure: Measure, totals: Numbers | list[int], counts: Numbers) -> pa.Array:
    """Return sums or averages of integers or decimals; null without values."""
    none = counts == 0
    if measure.function == "sum" and isinstance(totals, np.ndarray) and kinds.is_integer(measure.output):
        return pa.array(totals, mask=none)
    listed = totals.tolist() if isinstance(totals, np.ndarray) else totals
    if measure.function == "sum":
        return _exactly(measure, listed, none)
    pairs = zip(listed, counts.tolist(), strict=True)
    if not kinds.is_decimal(measure.output):
        return pa.array([total / count if count else None for total, count in pairs], pa.float64())
    scale = measure.input.scale if measure.input is not None else 0
    factor = 10 ** (measure.output.scale - scale)
    return _exactly(measure, [_half_up(total * factor, max(count, 1)) for total, count in pairs], none)


def _exactly(measure: Measure, values: Sequence[int], none: Mask) -> pa.Array:
    """Return integers, or units of a decimal's last digit, as a column of the measure's type."""
    kind = measure.output
    largest = 10**kind.precision - 1 if kinds.is_decimal(kind) else _TOO_LARGE - 1
    least = -largest if kinds.is_decimal(kind) else -_TOO_LARGE
    if any(not least <= value <= largest for value in values):
        raise Invalid(
            "the result of an aggregate overflows its type",
            code="HF-E2348",
            where=f"{measure.function}({measure.column})",
            expected=f"a value that fits {kind}",
            hint="cast an integer column to decimal(28,0), or a decimal column to a smaller scale; double"
            " also works, but rounds",
        )
    if not kinds.is_decimal(kind):
        return pa.array(values, kind, mask=none)
    data = pa.py_buffer(b"".join(value.to_bytes(16, "little", signed=True) for value in values))
    column = pa.Array.from_buffers(kind, len(values), [None, data])
    return pc.if_else(pa.array(~none), column, pa.scalar(None, kind))


def _half_up(value: int, divisor: int) -> int:
    """Return a quotient rounded to the nearest integer, halves away from zero, as in Spark."""
    rounded = (2 * abs(value) + divisor) // (2 * divisor)
    return rounded if value >= 0 else -rounded


def _float_results(
    measure: Measure, values: NDArray[np.float64], counts: Numbers, start: Numbers, stop: Numbers
) -> pa.Array:
    """Return sums or averages of floating-point numbers, rounded once."""
    finite = np.isfinite(values)
    units, power = _float_units(np.where(finite, values, 0.0))
    totals = _totals(units, start, stop)
    results: list[float | None] = []
    for total, count in zip(map(int, totals), counts.tolist(), strict=True):
        divisor = count if measure.function == "avg" else 1
        results.append(_quotient(total, divisor, power) if count else None)
    if not finite.all():
        kept = {name: _over(of(values).astype(np.int64), start, stop) > 0 for name, of in _SPECIAL.items()}
        for row in np.flatnonzero(kept["nan"] | kept["up"] | kept["down"]).tolist():
            if kept["nan"][row] or (kept["up"][row] and kept["down"][row]):
                results[row] = math.nan
            else:
                results[row] = math.inf if kept["up"][row] else -math.inf
    return pa.array(results, pa.float64())


_SPECIAL: dict[str, Any] = {"nan": np.isnan, "up": np.isposinf, "down": np.isneginf}


def _float_units(values: NDArray[np.float64]) -> tuple[list[int], int]:
    """Return floating-point numbers as integers, and the power of two by which they are scaled."""
    mantissas, exponents = np.frexp(values)
    whole = np.ldexp(mantissas, 53).astype(np.int64)
    shifts = exponents.astype(np.int64) - 53
    present = shifts[whole != 0]
    least = min(int(present.min()), 0) if len(present) else 0
    shifts = np.where(whole != 0, shifts - least, 0)
    units = [number << shift for number, shift in zip(whole.tolist(), shifts.tolist(), strict=True)]
    return units, -least


def _quotient(total: int, divisor: int, power: int) -> float:
    try:
        return total / (divisor << power)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def _extremes(column: pa.Array, there: Mask, start: Numbers, stop: Numbers, *, largest: bool) -> pa.Array:
    """Return the smallest or largest value of each range; as in Spark SQL, NaN is the largest number."""
    order = pc.array_sort_indices(column, null_placement="at_end").to_numpy().astype(np.int64)
    ranks = np.empty(len(column), np.int64)
    ranks[order] = np.arange(len(column))
    if largest:
        ranks = np.where(there, ranks, -1)
    rank = _least_of(-ranks, start, stop) if largest else _least_of(ranks, start, stop)
    rank = -rank if largest else rank
    none = (rank < 0) | (rank >= int(there.sum()))
    return column.take(pa.array(order[np.where(none, 0, rank)], mask=none))


def _least_of(ranks: Numbers, start: Numbers, stop: Numbers) -> Numbers:
    """Return the smallest rank of each range, from two overlapping ranges whose length is a power of two."""
    levels = np.frexp((stop - start).astype(np.float64))[1] - 1
    lowest = np.empty(len(start), np.int64)
    least = ranks
    for level in range(int(levels.max(initial=-1)) + 1):
        here = levels == level
        width = 1 << level
        lowest[here] = np.minimum(least[start[here]], least[stop[here] - width])
        least = np.minimum(least[:-width], least[width:])
    return lowest


_MICROS = 1_000
_FIRST, _LAST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_NOT_YET = -(2**53)  # a watermark in milliseconds before all times, also when converted to microseconds
_NEVER = 2**53


@dataclass(frozen=True, slots=True)
class RangeAggregation:
    """The specification of running aggregates over a range.

    Attributes:
        events: The columns of the events.
        keys: The key columns.
        time: The event-time column.
        size_us: The length of the range, in microseconds.
        measures: The aggregates.
        stored: The columns of the events that are stored.
    """

    events: pa.Schema
    keys: tuple[str, ...]
    time: str
    size_us: int
    measures: tuple[Measure, ...]
    stored: tuple[str, ...]

    @property
    def output(self) -> pa.Schema:
        """Return the columns of the result: those of the events, then the aggregates."""
        added = [pa.field(measure.name, measure.output) for measure in self.measures]
        return pa.schema([*(pa.field(field.name, field.type) for field in self.events), *added])


@dataclass(frozen=True, slots=True)
class RangeRows:
    """Events of some keys: the index of each event's key, the time in microseconds, and the columns."""

    position: Numbers
    at: Numbers
    table: pa.Table

    def take(self, order: Any) -> RangeRows:
        """Return the rows at these indices, in this order."""
        return RangeRows(self.position[order], self.at[order], self.table.take(pa.array(order)))

    def where(self, mask: Mask) -> RangeRows:
        """Return the rows in a mask."""
        return self.take(np.flatnonzero(mask))

    def sorted(self) -> RangeRows:
        """Return the rows ordered by key and time; rows with the same time keep their order of arrival."""
        return self.take(np.lexsort((self.at, self.position)))


class OverTable(KeyedTable):
    """The base class of both processors, which stores the events of each key in chunks."""

    def __init__(self, over: RangeAggregation) -> None:
        self._over = over

    def _rows_of(self, events: pa.Table, state: Any) -> RangeRows:
        columns = {name: events.column(name) for name in self._over.stored}
        return RangeRows(state.position, micros(events.column(self._over.time)), pa.table(columns))

    def _stored_rows(self, state: Any) -> RangeRows:
        """Return all stored events of the keys, in the order of arrival within each key."""
        lists = state.rows.get()
        chunks = lists.flatten()
        rows = pa.RecordBatch.from_struct_array(chunks.flatten())
        lengths = lists.value_lengths().to_numpy(zero_copy_only=False)
        sizes = chunks.value_lengths().to_numpy(zero_copy_only=False)
        position = np.repeat(np.repeat(np.arange(state.size), lengths), sizes)
        table = pa.Table.from_batches([rows])
        return RangeRows(position, micros(table.column(self._over.time)), table)

    def _keep(self, state: Any, rows: RangeRows, where: Mask) -> None:
        """Store the rows of each key in a mask as a new chunk."""
        rows = rows.where(where[rows.position])
        rows = rows.take(np.argsort(rows.position, kind="stable"))
        counts = np.bincount(rows.position, minlength=state.size)
        fields = list(state_type(self._over).value_type)
        arrays = [whole(rows.table.column(name)) for name in self._over.stored]
        chunks = pa.ListArray.from_arrays(
            pa.array(offsets_of(counts), pa.int32()),
            pa.StructArray.from_arrays(arrays, fields=fields),
        )
        # A list takes one value per event, so the key's chunk is added with its first event.
        first = np.zeros(len(state.position), np.bool_)
        first[np.unique(state.position, return_index=True)[1]] = True
        first &= (counts > 0)[state.position]
        state.rows.append(chunks.take(pa.array(state.position, mask=~first)), where=first)

    def _renewed(self, state: Any, rows: RangeRows, live: Mask) -> tuple[Mask, Numbers]:
        """Clear keys with at least half of their rows retired; return a mask of them, and the rows left per
        key.
        """
        held = np.bincount(rows.position, minlength=state.size)
        kept = np.bincount(rows.position[live], minlength=state.size)
        anew = 2 * kept <= held
        state.rows.clear(where=anew)
        return anew, kept

    def _retired(self, rows: RangeRows, now_us: int) -> Mask:
        """Return a mask of the rows that no later event can have in its range."""
        gone: Mask = rows.at <= max(now_us, _FIRST + self._over.size_us) - self._over.size_us
        return gone

    def _answered(self, rows: RangeRows, asked: Numbers) -> dict[str, pa.Array]:
        """Return the aggregates of some rows; all rows must be sorted."""
        start, stop = ranges_before(rows.position, rows.at, asked, self._over.size_us)
        results = {}
        for measure in self._over.measures:
            column = None if measure.column is None else whole(rows.table.column(measure.column))
            results[measure.name] = aggregate(measure, column, start, stop)
        return results


class FinalOver(OverTable):
    """A processor that returns each event once, when the watermark has reached it.

    The states are declared by `final_over`: `rows` has the events in chunks, `due` the time of the key's
    timer, and `done` the watermark up to which events were returned.
    """

    def on_batch(self, events: pa.Table, state: Any) -> None:
        """Store the events, and set a timer for the first of them."""
        rows = self._rows_of(events, state)
        self._keep(state, rows, np.ones(state.size, np.bool_))
        before = state.due.get()
        due = np.minimum(before, timer_ms(lowest(rows, state.size)))
        state.due = due
        state.timer(due, where=due < before)

    def on_timers(self, _timers: pa.Table, state: Any) -> pa.Table:
        """Return the events that the watermark has reached, and delete retired ones."""
        now_us = state.watermark_ms * _MICROS
        stored = self._stored_rows(state)
        rows = stored.sorted()
        done_us = state.done.get() * _MICROS
        asked = np.flatnonzero((rows.at > done_us[rows.position]) & (rows.at <= now_us))
        table = rows.table.take(pa.array(asked))
        for name, column in zip(self._over.keys, state.keys.columns, strict=True):
            if name not in self._over.stored:
                table = table.append_column(name, column.take(pa.array(rows.position[asked])))
        for name, column in self._answered(rows, asked).items():
            table = table.append_column(name, column)
        self._retire(state, stored, now_us)
        return table

    def _retire(self, state: Any, rows: RangeRows, now_us: int) -> None:
        live = ~self._retired(rows, now_us)
        anew, kept = self._renewed(state, rows, live)
        self._keep(state, rows.where(live), anew)
        waiting = lowest(rows.where(rows.at > now_us), state.size)
        idle = waiting == _LAST
        wake = timer_ms(np.where(idle, highest(rows, state.size, self._over.size_us), waiting))
        some = kept > 0
        state.due.set(wake, where=some)
        state.done.set(np.full(state.size, state.watermark_ms), where=some)
        state.timer(wake, where=some)
        state.due.clear(~some)
        state.done.clear(~some)


class EarlyOver(OverTable):
    """A processor that returns each event in its batch, aggregated over all events up to that batch."""

    def on_batch(self, events: pa.Table, state: Any) -> pa.Table:
        """Return the events with aggregates, store them, and set a timer for when the last one retires."""
        # The watermark of a new query is 1970, and no event is late yet.
        now_us = state.watermark_ms * _MICROS if state.watermark_ms else _FIRST
        before, new = self._stored_rows(state), self._rows_of(events, state)
        together = RangeRows(
            np.concatenate([before.position, new.position]),
            np.concatenate([before.at, new.at]),
            pa.concat_tables([before.table.select(self._over.stored), new.table]),
        )
        order = np.lexsort((together.at, together.position))
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        for name, column in self._answered(together.take(order), place[len(before.at) :]).items():
            events = events.append_column(name, column)
        anew, _ = self._renewed(state, before, ~self._retired(before, now_us))
        fresh = np.arange(len(together.at)) >= len(before.at)
        needed = fresh | (anew[together.position] & ~self._retired(together, now_us))
        self._keep(state, together.where(needed), np.ones(state.size, np.bool_))
        state.timer(timer_ms(highest(together, state.size, self._over.size_us)))
        return events

    def on_timers(self, _timers: pa.Table, state: Any) -> None:
        """Delete the events of keys that had no event for the length of the range."""
        state.rows.clear()


def final_over(over: RangeAggregation) -> KeyedTable:
    """Return a processor for `emit="final"`, which waits for the watermark."""
    due = State(StateKind.VALUE, pa.int64(), default=_NEVER)
    done = State(StateKind.VALUE, pa.int64(), default=_NOT_YET)
    return _build_processor(FinalOver, over, due=due, done=done)


def early_over(over: RangeAggregation) -> KeyedTable:
    """Return a processor for `emit="early"`, which does not wait."""
    return _build_processor(EarlyOver, over)


def state_type(over: RangeAggregation) -> pa.DataType:
    """Return the type of a chunk."""
    return pa.list_(pa.struct([pa.field(name, over.events.field(name).type) for name in over.stored]))


def _build_processor(base: type[OverTable], over: RangeAggregation, **states: State) -> KeyedTable:
    """Return a processor whose states have the types of the events, which are known only here."""
    body = {"__doc__": base.__doc__, "rows": State(StateKind.LIST, state_type(over)), **states}
    made: KeyedTable = type("Running", (base,), body)(over)
    return made


def micros(times: pa.ChunkedArray) -> Numbers:
    """Return times in microseconds since 1970."""
    ticks: Numbers = whole(times).cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
    return ticks


def timer_ms(us: Numbers) -> Numbers:
    """Return the first millisecond at which the watermark has reached a time.

    It is at least the first millisecond of 1970, because the watermark of a new query is 1970, when no event
    is late yet.
    """
    ms: Numbers = np.clip(-(-us // _MICROS), 1, LAST_MS)
    return ms


def lowest(rows: RangeRows, size: int) -> Numbers:
    """Return the earliest time of each key, or the largest possible time for a key without rows."""
    earliest = np.full(size, _LAST)
    np.minimum.at(earliest, rows.position, rows.at)
    return earliest


def highest(rows: RangeRows, size: int, more: int) -> Numbers:
    """Return the latest time of each key, plus `more`."""
    later: Numbers = np.minimum(latest(rows.position, rows.at, size), _LAST - more) + more
    return later


_WHERE = "holdfast.running(…)"
_WHY = "without one, events are kept for ever"
Emit: TypeAlias = Literal["final", "early"]
EMITS: Final = get_args(Emit)


def running(
    df: DataFrame,
    *,
    by: str | Iterable[str],
    time: str,
    size: Duration,
    agg: Mapping[str, str],
    emit: Emit = "final",
    watermark: Duration | None = None,
    name: str = "running",
    side_outputs: bool = False,
    key_groups: int = KEY_GROUPS,
) -> DataFrame:
    """Add to each event the aggregates of its key over the last `size` of event time, including the event.

    The range of an event at time t is [t - size, t], both ends included, and includes all events of the key
    at time t. This is SQL's `OVER (PARTITION BY … ORDER BY … RANGE BETWEEN INTERVAL … PRECEDING AND CURRENT
    ROW)`.

    Results are exact. Integers and decimals are added exactly, and so are floating-point numbers, which are
    rounded once at the end. Retired events leave no rounding error, and the order of arrival does not matter.

    With `emit="final"` an event is returned once, when the watermark has reached it and its range is
    complete. With `emit="early"` it is returned in its own batch, aggregated over all events up to that
    batch; events in the range that arrive later are not included.

    The state consists of the events, until no later event can have them in its range. "final" stores all of
    their columns, "early" the time and the aggregated columns, so select only the columns you need. A batch
    reads the stored events of its keys. For one result per window instead of one per event, use `hf.windowed`
    with `slide`, which stores only sums.

    Args:
        df: A stream. Rows without a time are dropped.
        by: The key columns.
        time: The event-time column.
        size: The length of the range.
        agg: An aggregate for each new column: `{"mean": "avg(amount)", "orders": "count(*)"}`, with avg,
            count, max, min and sum.
        emit: The time at which an event is returned: "final" or "early".
        watermark: The allowed lateness of a row; None if the frame already has a watermark.
        name: The operator's name, unique in the query.
        side_outputs: Whether to return late events as side outputs, as `process` does.
        key_groups: The number of key groups, as in `hf.keyed`.

    Returns:
        A stream with the columns of `df` and the aggregates. It has no watermark.

    Raises:
        Invalid: A column, duration, aggregate or option is invalid, or there is no watermark.

    Example:
        orders = hf.running(events, by="customer", time="ts", size="1 hour", agg={"spend": "sum(amount)"})
        assert orders.columns == [*events.columns, "spend"]
    """
    from holdfast.stream.measures import measures_of
    from holdfast.worker.declarations.types import schema_of

    at_rest = "pyspark.sql.Window with rangeBetween"
    keys, timed = timed_stream(df, by, time, watermark, where=_WHERE, why=_WHY, at_rest=at_rest)
    final = one_of(emit, f"{_WHERE}: emit", EMITS) == "final"
    size_us = parse_duration(size, f"{_WHERE}: size") * 1_000
    schema = schema_of(df.schema)
    measures = measures_of(agg, schema, schema.names, where=_WHERE)
    measured = [measure.column for measure in measures if measure.column is not None]
    needed = [column for column in schema.names if column not in keys] if final else [time]
    stored = tuple(dict.fromkeys([*needed, *measured]))
    over = RangeAggregation(schema, tuple(keys), time, size_us, measures, stored)
    return keyed(timed, by=keys, key_groups=key_groups).process(
        final_over(over) if final else early_over(over),
        output=over.output,
        name=name,
        side_outputs=side_outputs,
    )
