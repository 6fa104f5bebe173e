"""The processors behind `hf.running`: aggregates over the last stretch of event time, for each event.

Events are kept as they came, in chunks of a batch each, until no later event can look back at them. What is
retired stays in its chunk until there is more of it than of the rest; then the key's chunks become one. So
an event is written about twice, and a key holds at most twice what its window does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from holdfast.stream.aggregates.ranges import aggregate, ranges_before
from holdfast.worker.arrays import latest, offsets_of, whole
from holdfast.worker.declarations.base_classes import KeyedTable
from holdfast.worker.declarations.state_descriptors import Kind, State
from holdfast.worker.runtime.timers import LAST_MS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdfast.stream.aggregates.measures import Measure

    Numbers = NDArray[np.int64]
    Mask = NDArray[np.bool_]

_MICROS = 1_000
_FIRST, _LAST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_NOT_YET = -(2**53)  # a watermark in milliseconds before all times, also in microseconds
_NEVER = 2**53


@dataclass(frozen=True, slots=True)
class RangeAggregation:
    """What is computed.

    Attributes:
        events: The columns of the events.
        keys: Those of the key.
        time: The one with the event time.
        size_us: How far an event looks back.
        measures: The aggregates.
        stored: The columns that are kept.
    """

    events: pa.Schema
    keys: tuple[str, ...]
    time: str
    size_us: int
    measures: tuple[Measure, ...]
    stored: tuple[str, ...]

    @property
    def output(self) -> pa.Schema:
        """The columns of the result: those of the events, then the aggregates."""
        added = [pa.field(measure.name, measure.output) for measure in self.measures]
        return pa.schema([*(pa.field(field.name, field.type) for field in self.events), *added])


@dataclass(frozen=True, slots=True)
class Rows:
    """Events of some keys: which key each is of, its time in microseconds, and its columns."""

    position: Numbers
    at: Numbers
    table: pa.Table

    def take(self, order: Any) -> Rows:
        """Some of them, in an order."""
        return Rows(self.position[order], self.at[order], self.table.take(pa.array(order)))

    def where(self, mask: Mask) -> Rows:
        """Those that a mask says."""
        return self.take(np.flatnonzero(mask))

    def sorted(self) -> Rows:
        """By key and time; those at one time in the order of their arrival."""
        return self.take(np.lexsort((self.at, self.position)))


class OverTable(KeyedTable):
    """What both processors share: the events of each key, kept in chunks."""

    def __init__(self, over: RangeAggregation) -> None:
        self._over = over

    def _rows_of(self, events: pa.Table, state: Any) -> Rows:
        columns = {name: events.column(name) for name in self._over.stored}
        return Rows(state.position, micros(events.column(self._over.time)), pa.table(columns))

    def _kept(self, state: Any) -> Rows:
        """All that is stored for the keys, in the order of arrival within each."""
        lists = state.rows.get()
        chunks = lists.flatten()
        rows = pa.RecordBatch.from_struct_array(chunks.flatten())
        lengths = lists.value_lengths().to_numpy(zero_copy_only=False)
        sizes = chunks.value_lengths().to_numpy(zero_copy_only=False)
        position = np.repeat(np.repeat(np.arange(state.size), lengths), sizes)
        table = pa.Table.from_batches([rows])
        return Rows(position, micros(table.column(self._over.time)), table)

    def _keep(self, state: Any, rows: Rows, where: Mask) -> None:
        """Add a chunk to some keys, made of their rows."""
        rows = rows.where(where[rows.position])
        rows = rows.take(np.argsort(rows.position, kind="stable"))
        counts = np.bincount(rows.position, minlength=state.size)
        fields = list(state_type(self._over).value_type)
        arrays = [whole(rows.table.column(name)) for name in self._over.stored]
        chunks = pa.ListArray.from_arrays(
            pa.array(offsets_of(counts), pa.int32()),
            pa.StructArray.from_arrays(arrays, fields=fields),
        )
        # A list takes a value of each event: the key's chunk goes with its first one.
        first = np.zeros(len(state.position), np.bool_)
        first[np.unique(state.position, return_index=True)[1]] = True
        first &= (counts > 0)[state.position]
        state.rows.append(chunks.take(pa.array(state.position, mask=~first)), where=first)

    def _renewed(self, state: Any, rows: Rows, live: Mask) -> tuple[Mask, Numbers]:
        """Empty the keys of whose rows half are retired; gives which, and how many rows of each are not."""
        held = np.bincount(rows.position, minlength=state.size)
        kept = np.bincount(rows.position[live], minlength=state.size)
        anew = 2 * kept <= held
        state.rows.clear(where=anew)
        return anew, kept

    def _retired(self, rows: Rows, now_us: int) -> Mask:
        """Which rows no event that is in time can look back at."""
        gone: Mask = rows.at <= max(now_us, _FIRST + self._over.size_us) - self._over.size_us
        return gone

    def _answered(self, rows: Rows, asked: Numbers) -> dict[str, pa.Array]:
        """The aggregates of some of the rows, which are sorted."""
        start, stop = ranges_before(rows.position, rows.at, asked, self._over.size_us)
        results = {}
        for measure in self._over.measures:
            column = None if measure.column is None else whole(rows.table.column(measure.column))
            results[measure.name] = aggregate(measure, column, start, stop)
        return results


class FinalOver(OverTable):
    """Answers each event once, when the watermark has reached it and nothing in its range can come any more.

    The states are those of `final_over`: `rows` in chunks, `due` the time of the key's timer, and `done` the
    watermark up to which events were answered.
    """

    def on_batch(self, events: pa.Table, state: Any) -> None:
        """Keep the events, and wake when the first of them is reached."""
        rows = self._rows_of(events, state)
        self._keep(state, rows, np.ones(state.size, np.bool_))
        before = state.due.get()
        due = np.minimum(before, timer_ms(lowest(rows, state.size)))
        state.due = due
        state.timer(due, where=due < before)

    def on_timers(self, _timers: pa.Table, state: Any) -> pa.Table:
        """Answer what the watermark has reached, and let go of what nobody looks back at."""
        now_us = state.watermark_ms * _MICROS
        stored = self._kept(state)
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

    def _retire(self, state: Any, rows: Rows, now_us: int) -> None:
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
    """Answers each event in its batch, from what has come until then; the whole batch included."""

    def on_batch(self, events: pa.Table, state: Any) -> pa.Table:
        """Answer the events, keep them, and wake when the last of them has been retired."""
        # A query starts with its watermark at 1970, and no event is late yet.
        now_us = state.watermark_ms * _MICROS if state.watermark_ms else _FIRST
        before, new = self._kept(state), self._rows_of(events, state)
        together = Rows(
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
        """Forget keys that have been silent for as long as anybody looks back."""
        state.rows.clear()


def final_over(over: RangeAggregation) -> KeyedTable:
    """Make the processor that waits for the watermark."""
    due = State(Kind.VALUE, pa.int64(), default=_NEVER)
    done = State(Kind.VALUE, pa.int64(), default=_NOT_YET)
    return _made(FinalOver, over, due=due, done=done)


def early_over(over: RangeAggregation) -> KeyedTable:
    """Make the processor that answers at once."""
    return _made(EarlyOver, over)


def state_type(over: RangeAggregation) -> pa.DataType:
    """The type of a chunk."""
    return pa.list_(pa.struct([pa.field(name, over.events.field(name).type) for name in over.stored]))


def _made(base: type[OverTable], over: RangeAggregation, **states: State) -> KeyedTable:
    """A processor whose states fit the events: their types are known no earlier than here."""
    body = {"__doc__": base.__doc__, "rows": State(Kind.LIST, state_type(over)), **states}
    made: KeyedTable = type("Running", (base,), body)(over)
    return made


def micros(times: pa.ChunkedArray) -> Numbers:
    """Times in microseconds since 1970."""
    ticks: Numbers = whole(times).cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
    return ticks


def timer_ms(us: Numbers) -> Numbers:
    """The first millisecond at which the watermark has reached a time.

    Never before the first one of 1970: a query starts with its watermark there, and no event is late yet.
    """
    ms: Numbers = np.clip(-(-us // _MICROS), 1, LAST_MS)
    return ms


def lowest(rows: Rows, size: int) -> Numbers:
    """The earliest time of each key; the last one there is for a key without rows."""
    earliest = np.full(size, _LAST)
    np.minimum.at(earliest, rows.position, rows.at)
    return earliest


def highest(rows: Rows, size: int, more: int) -> Numbers:
    """The latest time of each key, and so much later."""
    later: Numbers = np.minimum(latest(rows.position, rows.at, size), _LAST - more) + more
    return later
