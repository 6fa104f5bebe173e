"""The runner of a processor that handles events one at a time or key by key.

Keys are processed in the order of the pass, a few thousand at a time: their state objects are filled from
columns, the handlers run, and the values are converted back to columns.
"""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from holdfast.errors import Invalid
from holdfast.worker.declarations.handler_arguments import Event
from holdfast.worker.declarations.processor import handlers_of
from holdfast.worker.interface import Arrivals, FailedEvent, Moment, Outcome, Shared, Touched
from holdfast.worker.runtime.cells import Cells, WrongValue
from holdfast.worker.runtime.columns import Unfit, records, table_of
from holdfast.worker.runtime.context import KeyContext
from holdfast.worker.runtime.event_dispatcher import (
    UNTIMED,
    EachEvent,
    ErrorContext,
    EventDispatcher,
    HandlerFailed,
    NoFeed,
    WholeKey,
    collector,
    failure,
    line_of,
    misfit,
    summary,
)
from holdfast.worker.runtime.partial_aggregates import PartContext, PartFeed, nothing_from
from holdfast.worker.runtime.replay import Replay
from holdfast.worker.runtime.runner_spec import Settler
from holdfast.worker.runtime.state_objects import StateObject, cells_of, state_class
from holdfast.worker.runtime.timers import MOST_FIRINGS, TimerCells, due_in_order, timer_of
from holdfast.worker.runtime.ttl import Clocks, with_stamps_unset

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdfast.worker.declarations.processor import ProcessorDefinition
    from holdfast.worker.runtime.runner_spec import RunnerSpec

DEAD_LETTER = "dead-letter"

# The number of keys and events for which state objects and rows exist at a time: large enough for columnar
# work, small enough for the processor's caches.
_KEYS_AT_ONCE = 4096
_EVENTS_AT_ONCE = 16384
_MEND = 'fix the handler, or set such events aside with on_error="dead-letter"'


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Disable Python's garbage collector for cycles while rows and states exist.

    Rows and states are many, live until the end and contain no cycles; collecting took a third of the time.
    Cycles created by handlers are freed at the end, and their number is bounded, because a portion of keys
    is.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class RowRunner:
    """A runner of an `hf.Keyed` for the passes of a task.

    If a handler raises, the batch fails with an error that names the key, the event's stream and the line.
    With `on_error="dead-letter"` the event is set aside instead: the key is run again from its stored state
    without that event, so handlers must be deterministic and keep nothing in `self`. For `on_key`, all the
    key's events of the batch are set aside. Errors in `on_timer` and `on_start`, and values that do not match
    their type, always fail the batch.

    Args:
        definition: The definition of the processor.
        processor: The instance with the handlers.
        spec: The specification of the runner.
    """

    def __init__(
        self,
        definition: ProcessorDefinition,
        processor: Any,
        spec: RunnerSpec,
    ) -> None:
        self._name = definition.name
        self._processor = processor
        self._place = ErrorContext(spec.operator)
        self._output = spec.output
        self._key_names = spec.key_names
        self._sets_aside = spec.on_error == DEAD_LETTER
        self._rows: list[Any] = []
        self._clocks = Clocks()
        self._cells: list[Cells] = [cells_of(state, self._clocks) for state in definition.states]
        self._state_class = state_class(definition.name, self._cells)
        context = PartContext if spec.before else KeyContext
        self._ctx = context(definition.name, spec.default_clock, has_timers=definition.has_timers)
        event_clocks = self._clocks if definition.has_event_ttl else None
        make = WholeKey if definition.kind == "key" else EachEvent
        streams = list(zip(spec.stream_names, definition.handlers, spec.time_columns, strict=True))
        self._feeds: list[EventDispatcher] = [
            make(name, getattr(processor, handler), self._rows, time, event_clocks)
            for name, handler, time in [*(streams[at] for at in spec.chained), *streams]
        ]
        self._before_timers = len(spec.chained)
        if definition.merges:
            for feed in self._feeds:
                feed.collect = nothing_from("on_event")
        if spec.parts is not None:
            self._feeds.append(
                PartFeed(spec.parts, processor.merge, definition.states, definition.name, self._rows)
            )
        self._told = list(self._feeds)
        self._settler: Settler | None = None
        if spec.instances is not None:
            self._feeds.append(NoFeed("instances", Settler.enter, self._rows, None, None))
            on_restore = handlers_of(processor).get("on_restore")
            self._settler = Settler(spec.instances, definition.states, on_restore)
        self._on_end: Callable[..., Any] | None = processor.on_end if definition.ends else None
        self._collect_end = collector(self._on_end, self._rows) if self._on_end is not None else None
        self._on_timer: Callable[..., Any] | None = processor.on_timer if definition.has_timers else None
        self._collect_timer = collector(self._on_timer, self._rows) if self._on_timer is not None else None
        self._started = False
        self._replay = Replay(
            self._ctx,
            self._clocks,
            [cells.rule for cells in self._cells if cells.rule is not None and cells.rule.event],
            spec.delay_ms,
        )

    def share(self, rows: Shared) -> None:
        """Set the rows of the broadcast stream that the handlers read."""
        self._ctx._shared = rows

    def run(self, arrivals: Sequence[Arrivals], touched: Touched, moment: Moment) -> Outcome:
        """Fire due timers, process the events, and return the changes of state and the output.

        Raises:
            Failed: A user's function raised an exception, or a value does not match its type.
        """
        self._place = dataclasses.replace(self._place, batch_id=moment.batch_id)
        self._touched = touched
        self._keys: tuple[int, list[Event]] = (0, [])
        self._failed: list[FailedEvent] = []
        self._timers = TimerCells(touched, moment) if self._on_timer is not None else None
        self._replay.begin(moment, self._timers)
        self._clocks.begin(moment)
        self._ctx._begin(moment, self._key, self._timers)
        if not self._started:
            self._start()
        for cells in self._cells:
            cells.begin(touched, moment)
        for feed, arrived in zip(self._feeds, arrivals, strict=True):
            feed.begin(arrived, touched.size, self._clocks.watermark_ms, by_time=moment.replay is not None)
        due = self._timers.due() if self._timers is not None else None
        tables = [self._stretch(first, stop, due) for first, stop in self._stretches(touched.size)]
        columns = {name: column for cells in self._cells for name, column in cells.columns().items()}
        if self._timers is not None:
            columns |= self._timers.columns()
        output = pa.concat_tables(tables) if tables else self._output.empty_table()
        elements = {cells.name: table for cells in self._cells if (table := cells.elements()) is not None}
        return with_stamps_unset(Outcome(columns, elements, output, self._failed), moment)

    def _start(self) -> None:
        self._started = True
        try:
            self._processor.on_start(self._ctx)
        except Exception as error:
            raise self._stop(HandlerFailed(self._processor.on_start), error, None) from error

    def _stretches(self, size: int) -> list[tuple[int, int]]:
        """Return ranges of keys with a bounded number of keys and, where possible, of events."""
        bounds: NDArray[np.int64] = np.sum([feed.bounds for feed in self._feeds], axis=0)
        stretches = []
        first = 0
        while first < size:
            most = int(np.searchsorted(bounds, bounds[first] + _EVENTS_AT_ONCE, side="right")) - 1
            stop = min(size, first + _KEYS_AT_ONCE, max(most, first + 1))
            stretches.append((first, stop))
            first = stop
        return stretches

    @uninterrupted()
    def _stretch(self, first: int, stop: int, due: NDArray[np.bool_] | None) -> pa.Table:
        """Run the handlers for a range of keys and return their output."""
        for feed in self._feeds:
            feed.open(first, stop, self._refuse)
        states = self._states(first, stop)
        flags = due[first:stop].tolist() if due is not None and due[first:stop].any() else None
        marks: list[int] = []  # the number of rows after each key
        while True:
            try:
                self._run_keys(states, first, flags, marks)
                break
            except HandlerFailed as stopped:
                key = len(marks)
                self._set_aside(stopped, first, key)
                del self._rows[marks[-1] if marks else 0 :]
                states[key] = self._again(first + key)
        try:
            for cells in self._cells:
                cells.collect(states, first)
            table = table_of(self._rows, self._output)
        except WrongValue as wrong:
            place = dataclasses.replace(self._place, key=self._key(wrong.position), state=wrong.state)
            raise misfit("cannot write state", wrong.why, place) from wrong
        except Unfit as unfit:
            key = int(np.searchsorted(marks, unfit.at, side="right"))
            place = dataclasses.replace(self._place, key=self._key(first + key))
            raise misfit("cannot output a row", unfit.why, place) from unfit
        self._rows.clear()
        return table

    def _run_keys(
        self, states: list[StateObject], first: int, due: list[bool] | None, marks: list[int]
    ) -> None:
        """Run the remaining keys: due timers, events, then timers that have become due since.

        The events of chained streams that the watermark has reached come before the timers.
        """
        ctx, rows = self._ctx, self._rows
        # Streams without events for these keys are skipped.
        early, feeds = (
            [feed for feed in some if feed.stops[-1]]
            for some in (self._feeds[: self._before_timers], self._feeds[self._before_timers :])
        )
        settler, ends = self._settler, self._on_end is not None
        for key in range(len(marks), len(states)):
            state = states[key]
            ctx._enter(first + key)
            if settler is not None:
                settler.enter(state, ctx)
            for feed in early:
                feed.run(key, state, ctx)
            if (due is not None and due[key]) or (early and ctx._due):
                self._fire(state)
            if self._replay.until is not None:
                self._in_order(key, state, feeds)
            else:
                for feed in feeds:
                    feed.run(key, state, ctx)
            if ends:
                self._finish(key, state)
            if ctx._due:
                self._fire(state)
            if ctx._one is not None:
                ctx._leave()
            marks.append(len(rows))

    def _in_order(self, key: int, state: StateObject, feeds: list[EventDispatcher]) -> None:
        """Run the events of a key by their time, each after the timers that the watermark has reached."""
        ctx, replay = self._ctx, self._replay
        for feed in feeds:
            if not isinstance(feed, EachEvent):
                feed.run(key, state, ctx)
        single = [feed for feed in feeds if isinstance(feed, EachEvent)]
        events = sorted(
            (feed.times[at] if feed.times else UNTIMED, number, at)
            for number, feed in enumerate(single)
            for at in range(feed.starts[key], feed.stops[key])
        )
        for time, number, at in events:
            if replay.reaches(time):
                self._fire(state)
            replay.stamp(time)
            single[number].handle(at, state, ctx)
        if replay.ends():
            self._fire(state)
        replay.leave()

    def _finish(self, key: int, state: StateObject) -> None:
        """Call `on_end` for the current key if it had events."""
        on_end, collect = self._on_end, self._collect_end
        if on_end is None or collect is None:
            return
        if any(feed.starts[key] < feed.stops[key] for feed in self._told):
            try:
                collect(on_end(state, self._ctx))
            except Exception as error:
                raise HandlerFailed(on_end) from error

    def _fire(self, state: StateObject) -> None:
        """Fire the due timers of the current key, including those set by its handlers."""
        ctx, cells, clocks = self._ctx, self._timers, self._clocks
        on_timer, collect = self._on_timer, self._collect_timer
        if cells is None or on_timer is None or collect is None:
            return
        timers = ctx._open()
        fired = 0
        while True:
            ctx._due = False
            for at, key in due_in_order(timers, cells.event_limit, cells.processing_limit):
                if timers.get(key) != at:
                    continue  # cancelled or moved by a timer that fired earlier
                del timers[key]
                clocks.event.stamp = at if key[0] == "e" else clocks.watermark_ms
                fired += 1
                try:
                    if fired > MOST_FIRINGS:
                        raise Invalid(
                            "timers of a key fire endlessly: each sets a timer that is already due",
                            code="HF-E2494",
                            hint="set timers later than ctx.watermark_ms or ctx.now_ms",
                        )
                    collect(on_timer(timer_of(key, at), state, ctx))
                except Exception as error:
                    raise HandlerFailed(on_timer) from error
                if ctx._due:
                    break  # a moved timer may now be due before the others
            if not ctx._due:
                return

    def _states(self, first: int, stop: int) -> list[StateObject]:
        make = self._state_class
        states = [make() for _ in range(first, stop)]
        for at, state in enumerate(states, first):
            state._at = at
        for cells in self._cells:
            cells.load(states, first)
        return states

    def _again(self, position: int) -> StateObject:
        """Discard the key's changes of this pass and return its stored state."""
        for cells in self._cells:
            cells.forget(position)
        if self._timers is not None:
            self._timers.changed.pop(position, None)
        return self._states(position, position + 1)[0]

    def _set_aside(self, stopped: HandlerFailed, first: int, key: int) -> None:
        """Set aside the event at which a handler failed, or all of the key's events for `on_key`.

        Raises:
            Failed: `on_error` is "fail", or the handler was called without an event.
        """
        error = stopped.__cause__ or stopped
        feed = stopped.feed
        if feed is None or not self._sets_aside:
            raise self._stop(stopped, error, first + key) from error
        line = line_of(error, stopped.function)
        text = f"{summary(error)} (at {line})" if line else summary(error)
        at = range(feed.starts[key], feed.stops[key]) if stopped.event is None else (stopped.event,)
        events = [feed.take_out(key, at[0]) for _ in at]
        self._failed += [FailedEvent(feed.name, event, text) for event in events]

    def _refuse(self, position: int, stream: str, event: dict[str, Any], error: str) -> None:
        """Set aside an event that Python cannot represent, or raise an error, depending on `on_error`."""
        if not self._sets_aside:
            place = dataclasses.replace(self._place, key=self._key(position), stream=stream)
            why = Invalid(error, code="HF-E2495", hint='set such events aside with on_error="dead-letter"')
            raise misfit("cannot read an event", why, place)
        self._failed.append(FailedEvent(stream, event, error))

    def _stop(self, stopped: HandlerFailed, error: BaseException, position: int | None) -> Exception:
        place = dataclasses.replace(
            self._place,
            key=self._key(position) if position is not None else None,
            stream=stopped.stream,
            line=line_of(error, stopped.function),
        )
        return failure(
            self._name, stopped.function, error, place, hint=_MEND if stopped.stream is not None else None
        )

    def _key(self, position: int) -> Event:
        """Return the key at an index; the keys near it are read at the same time."""
        start, keys = self._keys
        if not start <= position < start + len(keys):
            start = position // _KEYS_AT_ONCE * _KEYS_AT_ONCE
            table = self._touched.keys.slice(start, _KEYS_AT_ONCE).rename_columns(list(self._key_names))
            keys = records(table)
            self._keys = (start, keys)
        return keys[position - start]
