"""A sink that writes a table in large steps: rows are stored in operator state until a limit is reached."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.config.checks import whole
from holdfast.config.units import Duration, Size, parse_duration, parse_size
from holdfast.errors import Invalid
from holdfast.stream.keyed.operator_state import operate
from holdfast.stream.keyed.state_declarations import list_state
from holdfast.stream.sinks.ledger import Ledger
from holdfast.stream.sinks.query_sink import Sink
from holdfast.stream.sinks.sinks import sink
from holdfast.worker.declarations.state_descriptors import Operator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WHERE = "holdfast.BufferedSink(…)"
_AGE = "age"
_TALLY = "struct<rows: long, bytes: long, since: long>"


@dataclass(frozen=True, slots=True)
class BufferedSink:
    """A sink that writes a table in a ledger's database in steps of a given size or age, exactly once.

    Writing few rows at a time is slow in a database, and a short trigger interval makes small batches. Each
    instance stores its rows in operator state, and writes all of them when any limit is reached. Waiting rows
    are in the checkpoint, so a restart, a kill or a change of the number of instances neither loses nor
    repeats a row. When a query stops, waiting rows remain in the checkpoint, and the next run writes them.
    The age is checked once a second and when events arrive. `age` adds a source of ticks, so it cannot be
    added or removed after the first start.

    Args:
        table: The table, created if missing.
        ledger: The ledger or its address, as in `hf.sink(…).append(…)`.
        rows: The number of rows in an instance at which they are written.
        bytes: The approximate size of the rows in an instance at which they are written.
        age: The maximum time that a row waits.
        instances: The number of buffers; each is written separately.
        name: The name of the operator and of the sink; by default that of the table.

    Raises:
        Invalid: No limit is given, or a limit is out of range.

    Example:
        buffer = hf.BufferedSink("orders", "sqlite:///shop.db", rows=10_000, age="1 minute")
        sink = buffer.sink(events)
        assert (sink.kind, sink.target, sink.promise.level) == ("append", "orders", "exactly once")
    """

    table: str
    ledger: Ledger | str | Path
    rows: int | None = None
    bytes: Size | None = None
    age: Duration | None = None
    instances: int = 1
    name: str | None = None

    def __post_init__(self) -> None:
        """Check that at least one limit is given and that the limits are valid."""
        if self.rows is None and self.bytes is None and self.age is None:
            raise Invalid(
                "no limit given for the buffer",
                code="HF-E2351",
                where=_WHERE,
                expected="rows=…, bytes=… or age=…",
                hint='give at least one limit, as in rows=10_000, age="1 minute"',
            )
        if self.rows is not None:
            whole(self.rows, f"{_WHERE}: rows", least=1)
        if self.bytes is not None:
            parse_size(self.bytes, f"{_WHERE}: bytes")
        if self.age is not None:
            parse_duration(self.age, f"{_WHERE}: age")

    def sink(self, df: DataFrame) -> Sink:
        """Return a sink for a stream, to return from a job or to start.

        Raises:
            Invalid: The frame is not a stream, or a table cannot store its columns.
        """
        name = self.name or self.table
        buffer = buffer_of(df.schema.simpleString(), self.rows, self.bytes, self.age)
        written = operate(df, instances=self.instances).process(
            buffer, output=df.schema, name=name.replace(".", "-"), ticks=self.age is not None or None
        )
        return sink(written, name=self.name).append(self.table, self.ledger)


class Buffer(Operator):
    """An operator that stores rows until a limit is reached, and then returns all of them."""

    waiting: Any
    tally = list_state(_TALLY)

    def __init__(self, rows: int | None, size: int | None, age_ms: int | None) -> None:
        self._rows = rows
        self._bytes = size
        self._age_ms = age_ms

    def on_key(self, key: Any, events: Any, state: Any, ctx: Any) -> Iterator[Any]:  # noqa: ARG002 - a handler's arguments
        """Store the rows, and return all of them if a limit is reached."""
        rows = [tuple(event)[:-1] for event in events]
        state.waiting.extend(rows)
        count, size, since = next(iter(state.tally), (0, 0, ctx.now_ms))
        count, size = count + len(rows), size + sum(map(size_of, rows))
        state.tally.set([(count, size, since)])
        return self._written_if_full(count, size, since, state, ctx)

    def on_restore(self, state: Any, ctx: Any) -> None:
        """Count the rows of this instance again, with the current time as their time of arrival."""
        rows = list(state.waiting)
        state.tally.set([(len(rows), sum(map(size_of, rows)), ctx.now_ms)] if rows else [])

    def _written_if_full(self, count: int, size: int, since: int, state: Any, ctx: Any) -> Iterator[Any]:
        full = self._rows is not None and count >= self._rows
        large = self._bytes is not None and size >= self._bytes
        old = self._age_ms is not None and ctx.now_ms >= since + self._age_ms
        if full or large or old:
            yield from map(tuple, state.waiting)
            state.clear()


class AgedBuffer(Buffer):
    """A buffer that also returns its rows when the oldest one has reached the maximum age."""

    def on_key(self, key: Any, events: Any, state: Any, ctx: Any) -> Iterator[Any]:
        """Store the rows, and set the timer for the maximum age of the oldest one."""
        yield from super().on_key(key, events, state, ctx)
        self._set_timer(state, ctx)

    def on_timer(self, timer: Any, state: Any, ctx: Any) -> Iterator[Any]:  # noqa: ARG002 - a handler's arguments
        """Return the rows if the oldest one has reached the maximum age."""
        for count, size, since in list(state.tally):
            yield from self._written_if_full(count, size, since, state, ctx)
        self._set_timer(state, ctx)

    def on_restore(self, state: Any, ctx: Any) -> None:
        """Count the rows again, and set the timer."""
        super().on_restore(state, ctx)
        self._set_timer(state, ctx)

    def _set_timer(self, state: Any, ctx: Any) -> None:
        for _, _, since in state.tally:
            if self._age_ms is not None:
                ctx.timer(since + self._age_ms, name=_AGE, clock="processing")


def buffer_of(row: str, rows: int | None, size: Size | None, age: Duration | None) -> Buffer:
    """Return an operator that buffers rows of this Spark type."""
    base = Buffer if age is None else AgedBuffer
    made = type(base.__name__, (base,), {"waiting": list_state(row)})
    return made(  # type: ignore[no-any-return]
        rows,
        None if size is None else parse_size(size, _WHERE),
        None if age is None else parse_duration(age, _WHERE),
    )


def size_of(value: Any) -> int:
    """Estimate the size of a value in a row of a table, in bytes."""
    if value is None:
        return 1
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, (bytes, bytearray)):
        return len(value)
    if isinstance(value, dict):
        return sum(size_of(key) + size_of(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return sum(map(size_of, value))
    return 8
