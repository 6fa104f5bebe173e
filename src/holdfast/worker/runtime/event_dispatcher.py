"""The dispatch of a stream's events to a handler, with errors that name the key, the event and the line."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import length_hint
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

import holdfast.errors as kinds_of_error
from holdfast.errors import HoldfastError, Invalid
from holdfast.worker.arrays import offsets_of, whole
from holdfast.worker.declarations.handler_arguments import Event, record_class
from holdfast.worker.interface import Arrivals
from holdfast.worker.runtime.columns import plain, records, values_of
from holdfast.worker.runtime.ttl import Clocks, times_ms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdfast.worker.runtime.context import KeyContext


_PACKAGE = __name__.partition(".")[0]
_LONGEST = 200
# The time of an event whose time is null, in a history: after all others.
UNTIMED = 2**63 - 1


class HandlerFailed(Exception):
    """The exception for an error in a user's function; `__cause__` is the original exception.

    Attributes:
        function: The function that was called.
        event: The index of its event among the loaded ones, or None if it was called without an event.
        feed: The dispatcher of the event's stream.
    """

    def __init__(
        self, function: Callable[..., Any], event: int | None = None, feed: EventDispatcher | None = None
    ) -> None:
        super().__init__(function, event, feed)
        self.function = function
        self.event = event
        self.feed = feed

    @property
    def stream(self) -> str | None:
        """Return the name of the event's stream."""
        return self.feed.name if self.feed is not None else None


@dataclass(frozen=True, slots=True)
class ErrorContext:
    """The location of an error: operator, state, key, stream, batch and line, as far as they are known."""

    operator: str
    key: Event | None = None
    stream: str | None = None
    batch_id: int | None = None
    state: str | None = None
    line: str | None = None

    def __str__(self) -> str:
        key = None if self.key is None else key_text(self.key)
        names = {"state": self.state, "key": key, "stream": self.stream, "batch": self.batch_id}
        known = {"operator": self.operator, **names, "at": self.line}
        return ", ".join(f"{name} {value}" for name, value in known.items() if value is not None)


def key_text(key: Event) -> str:
    """Return a key as text, for example `customer=7, shop='east'`."""
    return shortened(", ".join(f"{name}={value!r}" for name, value in zip(key._fields, key, strict=True)))


def failure(
    processor: str,
    function: Callable[..., Any],
    error: BaseException,
    place: ErrorContext,
    *,
    hint: str | None = None,
) -> kinds_of_error.Failed:
    """Return the error to raise for an exception in a user's function."""
    return kinds_of_error.Failed(
        f"{processor}.{_name(function)} failed: {summary(error)}",
        code="HF-E1008",
        where=str(place),
        hint=hint,
    )


def misfit(fact: str, why: Invalid, place: ErrorContext) -> kinds_of_error.Failed:
    """Return the error to raise for a written value that does not match its type."""
    column = f", {why.where}" if why.where else ""
    return kinds_of_error.Failed(f"{fact}: {why.fact}", **(why.facts() | {"where": f"{place}{column}"}))


def summary(error: BaseException) -> str:
    """Return an error's class and message on one line."""
    text = error.fact if isinstance(error, HoldfastError) else str(error)
    line = " ".join(text.split())
    return shortened(f"{type(error).__name__}: {line}" if line else type(error).__name__)


def line_of(error: BaseException, function: Callable[..., Any]) -> str | None:
    """Return the file and line in the user's code at which an error was raised.

    The result is the innermost frame in the file of the called function, so that an error inside a library is
    located at its call; if there is none, it is the innermost frame outside Holdfast.
    """
    code = getattr(inspect.unwrap(getattr(function, "__func__", function)), "__code__", None)
    home = getattr(code, "co_filename", None)
    in_home = other = None
    trace = error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name == home:
            in_home = f"{name}:{trace.tb_lineno}"
        elif trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] != _PACKAGE:
            other = f"{name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return in_home or other


def shortened(text: str) -> str:
    """Return a text cut to the length of a log line."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


Collect = Callable[[Any], None]


def collector(function: Callable[..., Any], rows: list[Any]) -> Collect:
    """Return the function that adds a handler's result to `rows`: None, one row, or an iterable of rows."""
    if inspect.isgeneratorfunction(function):
        return rows.extend
    append, extend = rows.append, rows.extend

    def collect(result: Any) -> None:
        if result is None:
            return
        if isinstance(result, (dict, tuple, str, bytes, Mapping)) or not hasattr(result, "__iter__"):
            append(result)  # a value that is not a row is rejected later, with all rows
        else:
            extend(result)

    return collect


class EventDispatcher(ABC):
    """A dispatcher of one stream's events to a handler, key by key, within one pass.

    Subclasses define how the handler is called: `EachEvent` per event, `WholeKey` once per key.

    Args:
        name: The name of the stream.
        handler: The method to call with the stream's events.
        rows: The list to which the handler's rows are added.
        time: The event-time column, or None.
        clocks: The clocks of the pass, if a state needs the event's time.
    """

    def __init__(
        self,
        name: str,
        handler: Callable[..., Any],
        rows: list[Any],
        time: str | None,
        clocks: Clocks | None,
    ) -> None:
        self.name = name
        self.handler = handler
        self.collect = collector(handler, rows)
        self._time = time
        self._clocks = clocks
        self._sorted: pa.Table = None
        self._all_times: NDArray[np.int64] | None = None
        self.bounds: NDArray[np.int64] = np.zeros(1, np.int64)
        self.events: list[Event] = []
        self.times: list[int] = []
        self.starts: list[int] = []
        self.stops: list[int] = []

    def begin(self, arrivals: Arrivals, size: int, watermark_ms: int, *, by_time: bool = False) -> None:
        """Sort a pass's events by key; the events of one key keep their order.

        Args:
            arrivals: The events with the index of their key.
            size: The number of keys.
            watermark_ms: The event time of events that have none.
            by_time: Whether the events are in the order of event time, and their times are read.
        """
        position, events = arrivals.position, arrivals.events
        if len(position) and (position[1:] < position[:-1]).any():
            order = np.argsort(position, kind="stable")
            events = events.take(pa.array(order))
        self._sorted = events
        self.bounds = offsets_of(np.bincount(position, minlength=size))
        self._all_times = None
        if (by_time or self._clocks is not None) and self._time is not None:
            self._all_times = times_ms(events.column(self._time), UNTIMED if by_time else watermark_ms)

    def open(self, first: int, stop: int, refuse: Callable[[int, str, dict[str, Any], str], None]) -> None:
        """Load the events of a range of keys as rows.

        Args:
            first: The index of the first key.
            stop: The index after the last key.
            refuse: Called with key, stream, event and error for an event that Python cannot represent.
        """
        start, end = int(self.bounds[first]), int(self.bounds[stop])
        table = self._sorted.slice(start, end - start)
        offsets = (self.bounds[first : stop + 1] - start).tolist()
        self.starts, self.stops = offsets[:-1], offsets[1:]
        self.times = self._all_times[start:end].tolist() if self._all_times is not None else []
        try:
            self.events = records(table)
        except Invalid:
            self._open_one_by_one(table, first, refuse)

    def take_out(self, key: int, event: int) -> dict[str, Any]:
        """Remove the event at an index among the loaded ones, and return it as plain values."""
        taken: dict[str, Any] = plain(self.events[event])
        stop = self.stops[key]
        self.events[event : stop - 1] = self.events[event + 1 : stop]
        if self.times:
            self.times[event : stop - 1] = self.times[event + 1 : stop]
        self.stops[key] = stop - 1
        return taken

    @abstractmethod
    def run(self, key: int, state: Any, ctx: KeyContext) -> None:
        """Call the handler for the events of one key, given by its index among the loaded keys.

        Raises:
            HandlerFailed: The handler raised an exception.
        """

    def _open_one_by_one(
        self, table: pa.Table, first: int, refuse: Callable[[int, str, dict[str, Any], str], None]
    ) -> None:
        """Load the events that Python can represent, and call `refuse` for the others."""
        make = record_class(tuple(table.column_names))
        self.events = [make([None] * table.num_columns)] * table.num_rows
        bad = []
        for key, (start, stop) in enumerate(zip(self.starts, self.stops, strict=True)):
            for at in range(start, stop):
                row = table.slice(at, 1)
                try:
                    self.events[at] = records(row)[0]
                except Invalid as error:
                    where = f"{error.where}: " if error.where else ""
                    refuse(first + key, self.name, _as_text(row), f"{where}{error.fact}: {error.found}")
                    bad.append((key, at))
        for key, at in reversed(bad):
            self.take_out(key, at)


class EachEvent(EventDispatcher):
    """A dispatcher that calls the handler for each event."""

    def handle(self, event: int, state: Any, ctx: KeyContext) -> None:
        """Call the handler for one event, given by its index among the loaded ones."""
        try:
            self.collect(self.handler(self.events[event], state, ctx))
        except Exception as error:
            raise HandlerFailed(self.handler, event, self) from error

    def run(self, key: int, state: Any, ctx: KeyContext) -> None:
        """Call the handler for each event of one key."""
        start, stop = self.starts[key], self.stops[key]
        handler, collect = self.handler, self.collect
        events = iter(self.events[start:stop])
        try:
            if self._clocks is not None:
                clock = self._clocks.event
                times = self.times[start:stop] or [self._clocks.watermark_ms] * (stop - start)
                for clock.stamp, event in zip(times, events, strict=True):
                    collect(handler(event, state, ctx))
            else:
                for event in events:
                    collect(handler(event, state, ctx))
        except Exception as error:
            raise HandlerFailed(self.handler, stop - length_hint(events) - 1, self) from error


class WholeKey(EventDispatcher):
    """A dispatcher that calls the handler once per key with events.

    Writes get the time of the key's latest event as their timestamp.
    """

    def run(self, key: int, state: Any, ctx: KeyContext) -> None:
        """Call the handler once with all events of one key."""
        start, stop = self.starts[key], self.stops[key]
        if start == stop:
            return
        if self._clocks is not None:
            times = (time for time in self.times[start:stop] if time != UNTIMED)
            self._clocks.event.stamp = max(times, default=self._clocks.watermark_ms)
        try:
            self.collect(self.handler(ctx.key, self.events[start:stop], state, ctx))
        except Exception as error:
            raise HandlerFailed(self.handler, None, self) from error


class NoFeed(EventDispatcher):
    """A dispatcher for rows that only touch keys; no handler is called."""

    def run(self, key: int, state: Any, ctx: KeyContext) -> None:
        """Do nothing."""


def _as_text(row: pa.Table) -> dict[str, Any]:
    """Return a row as plain values, with text for values that Python cannot represent."""
    return {
        name: _in_words(whole(column)) for name, column in zip(row.column_names, row.columns, strict=True)
    }


def _in_words(cell: pa.Array) -> Any:
    try:
        return plain(values_of(cell)[0])
    except Invalid:
        # Any time can be cast to text; a time inside a nested value is shown in Arrow's format.
        return cell.cast(pa.string())[0].as_py() if kinds.is_timestamp(cell.type) else str(cell)
