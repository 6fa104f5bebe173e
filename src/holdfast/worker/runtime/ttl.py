"""The TTL rules of all runners: when values expire, and how reads and writes change their timestamps.

A value has the timestamp of its last write and, with "read_and_write", of its last read. It has expired when
its clock has reached timestamp + duration or is past it. Reading an expired value removes it; with
"return_if_not_cleaned_up" that read still returns the value. No function of this module reads a clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from holdfast.errors import Invalid
from holdfast.worker.declarations.state_descriptors import (
    MAX_MS,
    NEVER_EXPIRED,
    UNSTAMPED,
    State,
    Ttl,
    cutoff_ms,
    origin_ms,
)
from holdfast.worker.interface import STAMP_PREFIX, Moment, Outcome

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Stamps = NDArray[np.int64]
    Mask = NDArray[np.bool_]


def expired(stamp_ms: int, duration_ms: int, now_ms: int) -> bool:
    """Return whether a value with this timestamp has expired; an overflow counts as the latest time."""
    life = min(MAX_MS - stamp_ms, duration_ms) if stamp_ms > 0 else duration_ms
    return stamp_ms + life <= now_ms


class Clock:
    """The time for the timestamps of writes: that of the batch or of the current event."""

    __slots__ = ("stamp",)

    def __init__(self) -> None:
        self.stamp = 0


class Clocks:
    """The processing-time clock and the event-time clock of a runner.

    The runner sets the event-time clock for each event; between events it is the watermark. Without a
    watermark the time is unset, and `with_stamps_unset` stores null for it.
    """

    __slots__ = ("event", "processing", "watermark_ms")

    def __init__(self) -> None:
        self.event = Clock()
        self.processing = Clock()
        self.watermark_ms = UNSTAMPED

    def begin(self, moment: Moment) -> None:
        """Set both clocks at the start of a pass."""
        self.processing.stamp = moment.now_ms
        now = moment.event_time_ms
        self.watermark_ms = UNSTAMPED if now is None else now
        self.event.stamp = self.watermark_ms


class TtlRule:
    """The TTL of one state, at the time of a pass.

    Attributes:
        cutoff: The latest expired timestamp.
        refreshes: Whether reads set the timestamp, too.
        shows_expired: Whether the read that removes an expired value returns it.
        origin: The timestamp assumed for a value without one, written without a TTL or before a watermark.
    """

    __slots__ = (
        "_age_from",
        "clock",
        "cutoff",
        "duration_ms",
        "event",
        "origin",
        "refreshes",
        "shows_expired",
    )

    def __init__(self, ttl: Ttl, clocks: Clocks) -> None:
        self.duration_ms = ttl.duration_ms
        self.event = ttl.clock == "event"
        self.refreshes = ttl.update == "read_and_write"
        self.shows_expired = ttl.visibility == "return_if_not_cleaned_up"
        self.clock = clocks.event if self.event else clocks.processing
        self._age_from = ttl.age_from
        self.cutoff = NEVER_EXPIRED
        self.origin = 0

    def begin(self, moment: Moment) -> None:
        """Set the latest expired timestamp for a pass."""
        now = moment.event_time_ms if self.event else moment.now_ms
        self.cutoff = cutoff_ms(self.duration_ms, now)
        age = origin_ms(self._age_from, now)
        self.origin = UNSTAMPED if age is None else age

    def stamp(self, before: int | None) -> int:
        """Return the timestamp of a write or a refreshing read; in event time it never decreases."""
        now = self.clock.stamp
        return before if self.event and before is not None and before > now else now

    def stamps(self, before: Stamps, now: Stamps | int) -> Stamps:
        """Return the timestamps of many writes, as `stamp` does for one."""
        if self.event:
            return np.asarray(np.maximum(before, now), np.int64)
        return np.full(len(before), now, np.int64)


@dataclass(frozen=True, slots=True)
class Reading:
    """The effect of reading many values at once.

    Attributes:
        shown: A mask of the values that are returned.
        kept: A mask of the values that remain.
        stamps: The timestamps after the read.
    """

    shown: Mask
    kept: Mask
    stamps: Stamps


def read(rule: TtlRule, present: Mask, stamps: Stamps, now: Stamps | int) -> Reading:
    """Return the effect of reading values, accumulators or map entries, each of which expires separately."""
    kept = present & ~(stamps <= rule.cutoff)
    if rule.refreshes:
        stamps = np.where(kept, rule.stamps(stamps, now), stamps)
    return Reading(present if rule.shows_expired else kept, kept, stamps)


@dataclass(frozen=True, slots=True)
class ListReading:
    """The effect of reading one list: the indices of the elements to return, to remove and to stamp."""

    shown: Sequence[int]
    removed: Sequence[int]
    restamped: Sequence[int]


def read_list(rule: TtlRule, stamps: Sequence[int]) -> ListReading:
    """Return the effect of reading a list whose elements expire separately.

    Expired elements remain until a refreshing read rewrites the list, or until all have expired.
    """
    cutoff = rule.cutoff
    everything = range(len(stamps))
    alive = [at for at in everything if stamps[at] > cutoff]
    if len(alive) == len(stamps):
        return ListReading(everything, (), everything if rule.refreshes else ())
    shown = everything if rule.shows_expired else alive
    if not alive:
        return ListReading(shown, everything, ())
    if rule.refreshes:
        return ListReading(shown, [at for at in everything if stamps[at] <= cutoff], alive)
    return ListReading(shown, (), ())


def with_stamps_unset(outcome: Outcome, moment: Moment) -> Outcome:
    """Return the result of a pass, with null for event-time timestamps before the first watermark."""
    if moment.event_time_ms is not None:
        return outcome
    columns = {
        name: _unset(column) if name.startswith(STAMP_PREFIX) else column
        for name, column in outcome.columns.items()
    }
    elements = {
        name: table.set_column(at, "t", _unset(table.column(at))) if at >= 0 else table
        for name, table in outcome.elements.items()
        for at in [table.schema.get_field_index("t")]
    }
    return replace(outcome, columns=columns, elements=elements)


def _unset(stamps: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    missing = pc.equal(stamps, pa.scalar(UNSTAMPED, pa.int64()))
    return pc.if_else(missing, pa.scalar(None, pa.int64()), stamps)


def rule_of(state: State, clocks: Clocks) -> TtlRule | None:
    """Return the TTL rule of a state, or None without a TTL."""
    return TtlRule(state.ttl, clocks) if state.ttl is not None else None


def times_ms(column: pa.ChunkedArray | pa.Array, watermark_ms: int) -> Stamps:
    """Return the event times of a column in epoch milliseconds, rounded down; a null time becomes the
    watermark.

    Raises:
        Invalid: The column is not a timestamp.
    """
    if not kinds.is_timestamp(column.type):
        raise Invalid(
            "the time column of a stream must be a timestamp",
            code="HF-E2514",
            found=str(column.type),
            hint="convert the column before hf.keyed: F.to_timestamp(…)",
        )
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    ticks: Any = column.cast(pa.int64())
    per_ms = {"s": 0, "ms": 1, "us": 1_000, "ns": 1_000_000}[column.type.unit]
    missing = ticks.is_null().to_numpy(zero_copy_only=False) if ticks.null_count else None
    if missing is not None:
        ticks = ticks.fill_null(0)
    numbers = ticks.to_numpy()
    times = np.asarray(numbers // per_ms if per_ms else numbers * 1_000, np.int64)
    if missing is not None:
        times = np.where(missing, np.int64(watermark_ms), times)
    return times
