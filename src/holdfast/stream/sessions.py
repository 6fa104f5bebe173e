"""Sessions of each key in event time (`hf.sessions`).

Events wait until the watermark has reached them and are then processed in the order of their times. So
sessions never have to be merged or moved, and the result does not depend on the order of arrival.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as kinds

from holdfast.config.units import Duration, parse_duration
from holdfast.errors import Invalid
from holdfast.stream.event_time import quoted, timed_stream
from holdfast.stream.keyed.keyed_stream import KEY_GROUPS, keyed
from holdfast.stream.measures import Measure
from holdfast.worker.declarations.state_descriptors import Keyed, State, StateKind, greatest, least
from holdfast.worker.declarations.types import UTC_TIMESTAMP
from holdfast.worker.runtime.timers import EPOCH, LAST_MS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


ENDS = ("session_start", "session_end")
PHASE = "session"
OPEN, CLOSED = "open", "closed"
# Python's default precision is 28 digits. A sum has 38 digits, and its average must not be rounded twice.
_WIDE = decimal.Context(prec=120, rounding=decimal.ROUND_HALF_UP)
_MICROSECOND = dt.timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """The specification of sessions.

    Attributes:
        events: The columns of the events.
        keys: The key columns.
        time: The event-time column.
        gap_us: The time without events that ends a session, in microseconds.
        longest_us: The maximum length of a session in microseconds, or None without a limit.
        opened: Whether a row is returned when a session opens.
        measures: The aggregates.
    """

    events: pa.Schema
    keys: tuple[str, ...]
    time: str
    gap_us: int
    longest_us: int | None
    opened: bool
    measures: tuple[Measure, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that are stored for an event, except its time."""
        return tuple(dict.fromkeys(measure.column for measure in self.measures if measure.column is not None))

    @property
    def output(self) -> pa.Schema:
        """Return the columns of the result."""
        fields = [pa.field(key, self.events.field(key).type) for key in self.keys]
        fields += [pa.field(name, UTC_TIMESTAMP) for name in ENDS]
        fields += [pa.field(PHASE, pa.string())] if self.opened else []
        return pa.schema([*fields, *(pa.field(measure.name, measure.output) for measure in self.measures)])

    def end(self, start: int, last: int) -> int:
        """Return the end of a session, computed from its start and its last event."""
        end = last + self.gap_us
        return end if self.longest_us is None else min(end, start + self.longest_us)

    def goes_on(self, start: int, last: int, at: int) -> bool:
        """Return whether an event belongs to the session; the end of a session is inclusive."""
        return at <= self.end(start, last)


class SessionTracker(Keyed):
    """A processor that tracks sessions; `tracker` declares its states.

    `waiting` has the events that the watermark has not reached, and some that were already processed; `done`
    is the time up to which events were processed. `current` is the open session: start, last event,
    accumulators. `due` is the time of the key's timer.
    """

    def __init__(self, tracked: SessionSpec) -> None:
        self._tracked = tracked
        self._columns = tracked.columns
        places = {column: place for place, column in enumerate(self._columns, 1)}
        self._tallies = [_Tally(measure, places.get(measure.column or "")) for measure in tracked.measures]

    def on_event(self, event: Any, state: Any, ctx: Any) -> None:
        """Store the event until the watermark reaches it."""
        at = _micros(event[self._tracked.time])
        state.waiting.append((at, *(event[column] for column in self._columns)))
        self._wake(state, ctx, at)

    def on_timer(self, _timer: Any, state: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        """Process the events that the watermark has reached, and close the session if it has ended."""
        tracked, now, done = self._tracked, ctx.watermark_ms * 1_000, state.done
        rows = list(state.waiting)
        ripe = sorted((row for row in rows if done < row[0] <= now), key=_time)
        session = _open_session(state.current, self._tallies)
        for row in ripe:
            at = row[0]
            if session is not None and not tracked.goes_on(session.start, session.last, at):
                yield self._closed(session, ctx)
                session = None
            if session is None:
                session = _Session(at, at, [tally.fresh() for tally in self._tallies])
                if tracked.opened:
                    yield self._row(ctx, session.start, None, OPEN, [None] * len(self._tallies))
            session.last = at
            for tally, cells in zip(self._tallies, session.cells, strict=True):
                tally.add(cells, row)
        if session is not None and tracked.end(session.start, session.last) <= now:
            yield self._closed(session, ctx)
            session = None
        self._leave(state, ctx, rows, session, now)

    def _leave(self, state: Any, ctx: Any, rows: list[Any], session: _Session | None, now: int) -> None:
        """Store the remaining events, and set the timer for the next step."""
        left = [row for row in rows if row[0] > now]
        if not left:
            state.waiting.clear()
        elif 2 * len(left) <= len(rows):
            state.waiting.set(left)
        del state.due
        if session is None:
            del state.current
        else:
            cells = [cell for of_measure in session.cells for cell in of_measure]
            state.current = (session.start, session.last, *cells)
            self._wake(state, ctx, self._tracked.end(session.start, session.last))
        if left:
            state.done = now
            self._wake(state, ctx, min(map(_time, left)))
        else:
            del state.done

    @staticmethod
    def _wake(state: Any, ctx: Any, at: int) -> None:
        """Set the timer to a time of the watermark, unless the existing timer is earlier.

        The time is at least the first millisecond of 1970, because the watermark of a new query is 1970.
        """
        due = min(max(-(-at // 1_000), 1), LAST_MS)
        if state.due is None or due < state.due:
            state.due = due
            ctx.timer(due)

    def _closed(self, session: _Session, ctx: Any) -> dict[str, Any]:
        end = self._tracked.end(session.start, session.last)
        pairs = zip(self._tallies, session.cells, strict=True)
        return self._row(ctx, session.start, end, CLOSED, [tally.result(cells) for tally, cells in pairs])

    def _row(self, ctx: Any, start: int, end: int | None, phase: str, results: list[Any]) -> dict[str, Any]:
        tracked = self._tracked
        row: dict[str, Any] = dict(zip(tracked.keys, ctx.key, strict=True))
        row |= zip(ENDS, (_moment(start), None if end is None else _moment(end)), strict=True)
        if tracked.opened:
            row[PHASE] = phase
        names = (measure.name for measure in tracked.measures)
        return row | dict(zip(names, results, strict=True))


@dataclass(slots=True)
class _Session:
    """The open session of the current key."""

    start: int
    last: int
    cells: list[list[Any]]


class _Tally:
    """The accumulation of one aggregate in one or two cells.

    Args:
        measure: The aggregate.
        place: The index of the column in a waiting row, or None for `count(*)`.
    """

    def __init__(self, measure: Measure, place: int | None) -> None:
        self._measure = measure
        self._place = place
        self._decimal = measure.input is not None and kinds.is_decimal(measure.input)
        self._pick = {"min": least, "max": greatest}.get(measure.function, self._sum)
        self.width = 2 if measure.function == "avg" else 1

    def fresh(self) -> list[Any]:
        """Return the cells for a session without events."""
        return [0] if self._measure.function == "count" else [None, 0][: self.width]

    def add(self, cells: list[Any], row: Any) -> None:
        """Add a waiting row to the cells; nulls are ignored."""
        value = 1 if self._place is None else row[self._place]
        if value is None:
            return
        if self._measure.function == "count":
            cells[0] += 1
            return
        cells[0] = value if cells[0] is None else self._pick(cells[0], value)
        if self.width == 2:
            cells[1] += 1

    def result(self, cells: list[Any]) -> Any:
        """Return the result of the aggregate."""
        if self.width == 1 or cells[0] is None:
            return cells[0]
        total, count = cells
        if not self._decimal:
            return total / count
        unit = decimal.Decimal(1).scaleb(-self._measure.output.scale)
        return _WIDE.divide(total, decimal.Decimal(count)).quantize(unit, context=_WIDE)

    def _sum(self, one: Any, other: Any) -> Any:
        return _WIDE.add(one, other) if self._decimal else one + other


def result_names(keys: Iterable[str], *, opened: bool) -> list[str]:
    """Return the names of the result columns, without the aggregates.

    Raises:
        Invalid: A key column has the name of another result column.
    """
    own = [*ENDS, *([PHASE] if opened else [])]
    names = [*keys, *own]
    if len(set(names)) < len(names):
        raise Invalid(
            "a key column has the same name as another column of the result",
            code="HF-E2349",
            where="holdfast.sessions(…): by",
            found=", ".join(keys),
            expected=f"names other than {', '.join(own)}",
            hint="rename the key first: .withColumnRenamed(…)",
        )
    return names


def tracker(tracked: SessionSpec) -> SessionTracker:
    """Return a processor whose states have the types of the events, which are known only here."""
    columns = enumerate(tracked.columns)
    waiting = [pa.field(f"c{at}", tracked.events.field(name).type) for at, name in columns]
    cells = [kind for measure in tracked.measures for kind in _cell_types(measure)]
    current = [pa.field("start", pa.int64()), pa.field("last", pa.int64())]
    current += [pa.field(f"a{at}", kind) for at, kind in enumerate(cells)]
    body = {
        "__doc__": SessionTracker.__doc__,
        "waiting": State(StateKind.LIST, pa.struct([pa.field("at", pa.int64()), *waiting])),
        "current": State(StateKind.VALUE, pa.struct(current)),
        "due": State(StateKind.VALUE, pa.int64()),
        "done": State(StateKind.VALUE, pa.int64(), default=-(2**63)),
    }
    made: SessionTracker = type("Sessions", (SessionTracker,), body)(tracked)
    return made


def _cell_types(measure: Measure) -> list[pa.DataType]:
    if measure.function == "avg":
        return [measure.sum_type, pa.int64()]
    return [measure.output]


def _open_session(current: Any, tallies: list[_Tally]) -> _Session | None:
    if current is None:
        return None
    start, last, *cells = current
    split, at = [], 0
    for tally in tallies:
        split.append(cells[at : at + tally.width])
        at += tally.width
    return _Session(start, last, split)


def _time(row: Any) -> int:
    at: int = row[0]
    return at


def _micros(at: dt.datetime) -> int:
    return (at - EPOCH) // _MICROSECOND


def _moment(us: int) -> dt.datetime:
    return EPOCH + us * _MICROSECOND


_WHERE = "holdfast.sessions(…)"
_WHY = "without one no session ever ends"


def sessions(
    df: DataFrame,
    *,
    by: str | Iterable[str],
    time: str,
    gap: Duration,
    agg: Mapping[str, str],
    longest: Duration | None = None,
    opened: bool = False,
    watermark: Duration | None = None,
    name: str = "sessions",
    side_outputs: bool = False,
    key_groups: int = KEY_GROUPS,
) -> DataFrame:
    """Group the events of each key into sessions, in which each event is at most `gap` after the previous
    one.

    A session is returned when it closes, which is when the watermark has reached its end: `session_start` is
    its first event, `session_end` the last one plus `gap`. An event exactly at the end still belongs to the
    session. Events are processed in the order of their times, when the watermark has reached them. So an
    event that arrives later than those around it joins them into one session, and the result does not depend
    on how the stream was divided into batches. With `opened=True` a row is also returned when a session
    opens; it is never withdrawn, and the row that closes the session has the same key and start.

    The state consists of the aggregated columns of the events that the watermark has not reached, and one row
    for the open session. Decimals and integers are added exactly, floating-point numbers in the order of the
    event times.

    `hf.windowed` with `gap` also builds sessions, in Spark's own plan and with any aggregate. Use
    `hf.sessions` for a row at the start of a session, a maximum length, or late events as side outputs.

    Args:
        df: A stream. Rows without a time are dropped.
        by: The key columns.
        time: The event-time column.
        gap: The time without events that ends a session.
        agg: An aggregate for each new column: `{"events": "count(*)", "spend": "sum(amount)"}`, with avg,
            count, max, min and sum.
        longest: The maximum length of a session, after which the next event opens a new one; None for no
            limit.
        opened: Whether to add the column `session`: "closed", or "open" in a row at the start of a session,
            which has no end and no aggregates.
        watermark: The allowed lateness of a row; None if the frame already has a watermark.
        name: The operator's name, unique in the query.
        side_outputs: Whether to return late events as side outputs, as `process` does.
        key_groups: The number of key groups, as in `hf.keyed`.

    Returns:
        A stream with the key columns, `session_start`, `session_end`, `session` if `opened=True`, and the
        aggregates. It has no watermark.

    Raises:
        Invalid: A column, duration, aggregate or name is invalid, or there is no watermark.

    Example:
        visits = hf.sessions(
            events,
            by="customer",
            time="ts",
            gap="30 minutes",
            agg={"orders": "count(*)", "spend": "sum(amount)"},
        )
        assert visits.columns == ["customer", "session_start", "session_end", "orders", "spend"]
    """
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    from holdfast.stream.measures import measures_of
    from holdfast.worker.declarations.types import schema_of

    at_rest = 'holdfast.windowed(df, time=…, gap="30 minutes")'
    keys, rows = timed_stream(df, by, time, watermark, where=_WHERE, why=_WHY, at_rest=at_rest)
    schema = schema_of(df.schema)
    gap_us = parse_duration(gap, f"{_WHERE}: gap") * 1_000
    longest_us = None if longest is None else parse_duration(longest, f"{_WHERE}: longest") * 1_000
    taken = result_names(keys, opened=opened)
    measures = measures_of(agg, schema, taken, where=_WHERE)
    tracked = SessionSpec(schema, tuple(keys), time, gap_us, longest_us, opened, measures)
    if not side_outputs:
        rows = rows.select(
            *(F.col(quoted(column)) for column in dict.fromkeys([*keys, time, *tracked.columns]))
        )
    return keyed(rows, by=keys, key_groups=key_groups).process(
        tracker(tracked), output=tracked.output, name=name, side_outputs=side_outputs
    )
