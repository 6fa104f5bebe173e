"""The runner of a processor that handles all events of a pass as one table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from holdfast.errors import Invalid
from holdfast.worker.arrays import latest
from holdfast.worker.declarations.state_descriptors import State
from holdfast.worker.interface import Arrivals, Moment, Outcome, Shared, Touched
from holdfast.worker.runtime.columns import conformed
from holdfast.worker.runtime.event_dispatcher import ErrorContext, failure, line_of, misfit
from holdfast.worker.runtime.state_table import TAKEN_NAMES, Fired, StateTable, TimerColumns
from holdfast.worker.runtime.table_columns import Pool, TableCells, View
from holdfast.worker.runtime.ttl import Clocks, times_ms, with_stamps_unset

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdfast.worker.declarations.processor import ProcessorDefinition
    from holdfast.worker.runtime.runner_spec import RunnerSpec

# A handler that exceeds this number of rounds sets its timers again in the past.
_MOST_ROUNDS = 10_000


class TableRunner:
    """A runner of an `hf.KeyedTable` for the passes of a task.

    First `on_timers` is called with all due timers, and again with due ones that it sets; then each stream
    with events is processed; then the timers that have become due. The events of chained streams that the
    watermark has reached are processed before all timers. A call has only the keys of its rows, so writing to
    every key of `state` does not change other keys. An exception always fails the batch, because it cannot be
    attributed to a single event.

    Args:
        definition: The definition of the processor.
        processor: The instance with the handlers.
        spec: The specification of the runner.

    Raises:
        Invalid: The name of a state is reserved by `StateTable`.
    """

    def __init__(
        self,
        definition: ProcessorDefinition,
        processor: Any,
        spec: RunnerSpec,
    ) -> None:
        self._name = definition.name
        self._spec = spec
        self._clocks = Clocks()
        self._handlers = [getattr(processor, name) for name in definition.handlers]
        self._on_timers: Callable[..., Any] | None = processor.on_timers if definition.has_timers else None
        self._shared: Shared | None = None
        self._states: dict[str, TableCells | Pool] = {}
        for state in definition.states:
            check_name(definition.name, state)
            make = Pool if state.has_elements else TableCells
            self._states[state.name] = make(state, self._clocks)
        self._needs_time = definition.has_event_ttl

    def share(self, rows: Shared) -> None:
        """Set the rows of the broadcast stream that the handlers read."""
        self._shared = rows

    def run(self, arrivals: Sequence[Arrivals], touched: Touched, moment: Moment) -> Outcome:
        """Fire due timers, process the events, and return the changes of state and the output.

        Raises:
            Failed: A handler raised an exception, or returned rows that do not match the output.
        """
        self._moment = moment
        self._size = touched.size
        self._keys = touched.keys.rename_columns(list(self._spec.key_names))
        self._clocks.begin(moment)
        self._timers = TimerColumns(touched, moment) if self._on_timers is not None else None
        for cells in self._states.values():
            cells.begin(touched, moment)
        before = len(self._spec.chained)
        early = (self._handle(at, events) for at, events in zip(self._spec.chained, arrivals, strict=False))
        tables = [*early, *self._fire()]
        tables += [self._handle(at, events) for at, events in enumerate(arrivals[before:])]
        if moment.replay is not None and self._timers is not None:
            self._timers.advance(moment.replay)
        tables += self._fire()
        columns = {
            name: column for cells in self._states.values() for name, column in cells.columns().items()
        }
        if self._timers is not None:
            columns |= self._timers.columns()
        written = {name: pool.elements() for name, pool in self._states.items() if isinstance(pool, Pool)}
        elements = {name: table for name, table in written.items() if table is not None}
        filled = [table for table in tables if table is not None]
        output = pa.concat_tables(filled) if filled else self._spec.output.empty_table()
        return with_stamps_unset(Outcome(columns, elements, output), moment)

    def _handle(self, at: int, arrived: Arrivals) -> pa.Table | None:
        """Call the handler of a stream, given by its index, with the stream's events."""
        if not arrived.events.num_rows:
            return None
        times: NDArray[np.int64] | int = self._clocks.watermark_ms
        time = self._spec.time_columns[at]
        if self._needs_time and time is not None:
            times = times_ms(arrived.events.column(time), self._clocks.watermark_ms)
        stream = self._spec.stream_names[at]
        return self._call(self._handlers[at], arrived.events, arrived.position, times, stream)

    def _fire(self) -> list[pa.Table | None]:
        """Call `on_timers` with the due timers, and again with those that become due during a call."""
        tables: list[pa.Table | None] = []
        if self._timers is None or self._on_timers is None:
            return tables
        fired: Fired | None = self._timers.take_due()
        while fired is not None:
            if len(tables) == _MOST_ROUNDS:
                raise failure(
                    self._name,
                    self._on_timers,
                    Invalid(
                        "timers fire endlessly: each round sets timers that are already due",
                        code="HF-E2509",
                        hint="set timers later than state.watermark_ms or state.now_ms",
                    ),
                    ErrorContext(self._spec.operator, batch_id=self._moment.batch_id),
                )
            times = fired.event_times(self._clocks.watermark_ms)
            rows = fired.table(self._keys)
            tables.append(self._call(self._on_timers, rows, fired.position, times, None))
            fired = self._timers.take_due()
        return tables

    def _call(
        self,
        handler: Callable[..., Any],
        rows: pa.Table,
        position: NDArray[np.int64],
        times: NDArray[np.int64] | int,
        stream: str | None,
    ) -> pa.Table | None:
        """Call a handler with its rows and the states of their keys."""
        view = self._view(position, times)
        state = StateTable(
            view,
            rows,
            self._keys,
            self._states,
            self._timers,
            self._spec.default_clock,
            self._moment,
            self._shared,
        )
        place = ErrorContext(self._spec.operator, stream=stream, batch_id=self._moment.batch_id)
        try:
            result = handler(rows, state)
        except Exception as error:
            place = dataclasses.replace(place, line=line_of(error, handler))
            raise failure(self._name, handler, error, place) from error
        if result is None:
            return None
        try:
            return conformed(result, self._spec.output)
        except Invalid as error:
            raise misfit(
                f"{self._name}.{handler.__name__} returned an invalid result", error, place
            ) from error

    def _view(self, position: NDArray[np.int64], times: NDArray[np.int64] | int) -> View:
        there = np.bincount(position, minlength=self._size) > 0
        keys = None if there.all() else np.flatnonzero(there)
        local = position if keys is None else np.searchsorted(keys, position)
        size = self._size if keys is None else len(keys)
        return View(keys, size, local, times, times if isinstance(times, int) else latest(local, times, size))


def check_name(processor: str, state: State) -> None:
    """Check that a state of a `KeyedTable` can be accessed by its name.

    Raises:
        Invalid: The name is reserved by `StateTable`.
    """
    if state.name in TAKEN_NAMES:
        raise Invalid(
            "the name of a state is reserved by hf.KeyedTable",
            code="HF-E2510",
            where=f"{processor}.{state.name}",
            expected=f"a name other than {', '.join(sorted(TAKEN_NAMES))}",
            hint="rename the state",
        )
