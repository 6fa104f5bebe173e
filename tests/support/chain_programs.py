"""Processors whose result has a watermark, and what must follow from it, in plain Python.

The models share nothing with the product. They get what Spark's offset log says: the watermark of each batch
and its events. `Visits` comes first; the other models are those of the operator behind it.
"""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import holdfast as hf

EVENTS = "who string, ts timestamp"
OUTPUT = "who string, what string, ts timestamp, n long"
DELAY = 5_000
# The grid of the times of rows, so that some rows are duplicates and some are behind the watermark.
GRID = 12_000
GAP = 15_000
QUIET = 6_000
WINDOW = 2_000
REACH = 12_000

# A row of `Visits`: who, what, ts in epoch milliseconds, n.
Row = tuple[str, str, int, int]


def files(seed: int, start: int, count: int, size: int) -> list[list[dict[str, Any]]]:
    """Files of events whose times move on and are sometimes late."""
    chance = random.Random(seed)
    return [
        [
            {
                "who": chance.choice(["ann", "bob", "cyd", "dan"]),
                "ts": start + number * 9_000 + chance.randrange(-16_000, 9_000, 500),
            }
            for _ in range(size)
        ]
        for number in range(count)
    ]


class Visits(hf.Keyed):
    """Rows at the events' times on a grid, and a row at the time of a timer."""

    n = hf.value(int, default=0)

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        state.n += 1
        ctx.timer(event.ts + hf.seconds(GAP / 1000), name="gap")
        at_ms = int(event.ts.timestamp() * 1000)
        yield {"who": event.who, "what": "visit", "ts": moment(at_ms // GRID * GRID), "n": state.n}

    def on_timer(self, timer: Any, state: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        yield {"who": ctx.key.who, "what": "gap", "ts": timer.at, "n": state.n}
        state.n = 0


class Quiet(hf.Keyed):
    """Counts rows until there are none for a while."""

    n = hf.value(int, default=0)

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        state.n += 1
        ctx.timer(event.ts + hf.seconds(QUIET / 1000), name="quiet")
        yield {"who": event.who, "what": event.what, "ts": event.ts, "n": state.n}

    def on_timer(self, timer: Any, state: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        yield {"who": ctx.key.who, "what": "quiet", "ts": timer.at, "n": state.n}
        state.n = 0


class QuietTable(hf.KeyedTable):
    """A row for each call with events, and for each timer."""

    n = hf.value(int, default=0)

    def on_batch(self, events: Any, state: Any) -> Any:
        state.n += 1
        times = state.last("ts")
        state.timer(
            pc.add(pc.cast(pc.cast(times, pa.timestamp("ms", "UTC")), pa.int64()), QUIET), name="quiet"
        )
        return state.table(what=["batch"] * state.size, ts=times, n=state.n)

    def on_timers(self, timers: Any, state: Any) -> Any:
        return state.table(what=["quiet"] * state.size, ts=state.last("at"), n=state.n)


def moment(at_ms: int) -> dt.datetime:
    """Epoch milliseconds as a datetime."""
    return dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc) + dt.timedelta(milliseconds=at_ms)


@dataclass
class _Timed:
    n: int = 0
    at: int | None = None


@dataclass
class VisitsModel:
    """The rows of `Visits` for each batch: first timers, then events that are not late."""

    keys: dict[str, _Timed] = field(default_factory=lambda: defaultdict(_Timed))
    late: int = 0

    def batch(self, watermark: int, events: list[dict[str, Any]]) -> list[Row]:
        rows: list[Row] = []
        for who in sorted({*self.keys, *(event["who"] for event in events)}):
            key = self.keys[who]
            self._fire(who, key, watermark, rows)
            for event in events:
                if event["who"] != who:
                    continue
                if watermark and event["ts"] <= watermark:
                    self.late += 1
                    continue
                key.n += 1
                key.at = event["ts"] + GAP
                rows.append((who, "visit", event["ts"] // GRID * GRID, key.n))
            self._fire(who, key, watermark, rows)
        return rows

    @staticmethod
    def _fire(who: str, key: _Timed, watermark: int, rows: list[Row]) -> None:
        if watermark and key.at is not None and key.at <= watermark:
            rows.append((who, "gap", key.at, key.n))
            key.at, key.n = None, 0


@dataclass
class QuietModel:
    """The rows of `Quiet`: rows that the watermark has reached, then timers, then the other rows."""

    keys: dict[str, _Timed] = field(default_factory=lambda: defaultdict(_Timed))
    before_timers: int = 0

    def batch(self, watermark: int, before: int, rows: list[Row]) -> list[Row]:
        del before
        out: list[Row] = []
        for who in sorted({*self.keys, *(row[0] for row in rows)}):
            key = self.keys[who]
            own = [row for row in rows if row[0] == who]
            early = [row for row in own if watermark and row[2] <= watermark]
            self.before_timers += bool(early and key.at is not None and key.at <= watermark)
            for some in (early, [row for row in own if row not in early]):
                for _, what, at, _ in some:
                    key.n += 1
                    key.at = at + QUIET
                    out.append((who, what, at, key.n))
                if watermark and key.at is not None and key.at <= watermark:
                    out.append((who, "quiet", key.at, key.n))
                    key.at, key.n = None, 0
        return out


@dataclass
class QuietTableModel:
    """The rows of `QuietTable`: a call with early rows, timers, and a call with the other rows."""

    keys: dict[str, _Timed] = field(default_factory=lambda: defaultdict(_Timed))
    before_timers: int = 0

    def batch(self, watermark: int, rows: list[Row]) -> list[Row]:
        out: list[Row] = []
        for who in sorted({*self.keys, *(row[0] for row in rows)}):
            key = self.keys[who]
            own = [row for row in rows if row[0] == who]
            early = [row for row in own if watermark and row[2] <= watermark]
            self.before_timers += bool(early and key.at is not None and key.at <= watermark)
            for some in (early, [row for row in own if row not in early]):
                if some:
                    key.n += 1
                    key.at = some[-1][2] + QUIET
                    out.append((who, "batch", some[-1][2], key.n))
                if watermark and key.at is not None and key.at <= watermark:
                    out.append((who, "quiet", key.at, key.n))
                    key.at = None
        return out


@dataclass
class WindowModel:
    """Counts for each key and window, when the watermark reaches the window's end."""

    counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    late: int = 0

    def batch(self, watermark: int, before: int, rows: list[Row]) -> list[tuple[Any, ...]]:
        for who, _, at, _ in rows:
            start = at // WINDOW * WINDOW
            if before and start + WINDOW <= before:
                self.late += 1
            else:
                self.counts[who, start] += 1
        ended = [window for window in self.counts if watermark and window[1] + WINDOW <= watermark]
        return sorted((who, start, self.counts.pop((who, start))) for who, start in ended)


@dataclass
class DedupeModel:
    """The first row for each key and time."""

    seen: set[tuple[str, int]] = field(default_factory=set)
    late: int = 0
    repeated: int = 0

    def batch(self, watermark: int, before: int, rows: list[Row]) -> list[tuple[Any, ...]]:
        del watermark
        out = []
        for who, _, at, _ in rows:
            if before and at <= before:
                self.late += 1
            elif (who, at) in self.seen:
                self.repeated += 1
            else:
                self.seen.add((who, at))
                out.append((who, at))
        return sorted(out)


@dataclass
class JoinModel:
    """Pairs of a row and an event of the same key that is at most `REACH` older."""

    rows: list[Row] = field(default_factory=list)
    events: list[tuple[str, int]] = field(default_factory=list)
    late: int = 0

    def batch(self, before: int, rows: list[Row], events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        in_time = [row for row in rows if not before or row[2] > before]
        others = [(event["who"], event["ts"]) for event in events if not before or event["ts"] > before]
        self.late += len(rows) - len(in_time)
        pairs = [(row, event) for row in in_time for event in (*self.events, *others)]
        pairs += [(row, event) for row in self.rows for event in others]
        self.rows += in_time
        self.events += others
        return sorted(
            (*row, at) for row, (who, at) in pairs if who == row[0] and row[2] - REACH <= at <= row[2]
        )
