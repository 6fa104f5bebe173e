"""The lag of a query behind its sources, in records or table versions, and in time.

With each batch a source reports its read position and its end. The first unread record arrived between two
batches: the source did not have it at the earlier batch and had it at the later one. Records are assumed to
arrive evenly between the two.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, TypeAlias

from holdfast.json_shapes import JsonShape, in_json
from holdfast.model import RECORDS, VERSIONS, BatchProgress, PartitionPosition

# The number of a source, the topic, and the partition.
_Place: TypeAlias = tuple[int, str, "int | None"]

# A smaller delay does not count as growing, because rows arrive in bursts.
_LEAST_GROWING_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Lag(JsonShape):
    """The lag of a query behind one partition of a source.

    Attributes:
        query: The name of the query.
        source: The number of the source, as shown by `holdfast offsets`.
        topic: The topic, or the Delta table.
        partition: The partition; None for a table, and for a topic with very many partitions, which is
            reported as a whole.
        next: The offset of the first unread record; for a table, the first version that is not read
            completely.
        latest: The offset of the next record to be written, when the newest batch was planned; for a table,
            its next version when that batch finished.
        behind_ms: The waiting time of the first unread record or version; 0 if there is none.
        at_least: Whether `behind_ms` is a lower bound, because the record is older than the known batches.
        unit: `records`, or `versions` of a Delta table.
    """

    query: str
    source: int
    topic: str
    partition: int | None
    next: int
    latest: int
    behind_ms: int
    at_least: bool = False
    unit: str = RECORDS

    @property
    def left(self) -> int:
        """The number of unread records or versions."""
        return max(self.latest - self.next, 0)

    @property
    @in_json
    def records(self) -> int | None:
        """The number of unread records; null for a Delta table."""
        return self.left if self.unit == RECORDS else None

    @property
    @in_json
    def versions(self) -> int | None:
        """The number of unread versions of a Delta table, including those without rows; null for a topic."""
        return self.left if self.unit == VERSIONS else None


def lags(history: Sequence[BatchProgress], now_ms: int) -> tuple[Lag, ...]:
    """Return the lag of a query for each partition of the sources that report their ends.

    Args:
        history: The batches of the query, oldest first; at least one.
        now_ms: The current time in epoch milliseconds.
    """
    batch = history[-1]
    waits = _waits(history, now_ms)
    return tuple(
        Lag(
            batch.query,
            source,
            position.topic,
            position.partition,
            position.next,
            position.latest,
            *waits.get((source, position.topic, position.partition), (0, False)),
            position.unit,
        )
        for (source, _, _), position in _positions(batch)
    )


def growing_ms(history: Sequence[BatchProgress], found: Sequence[Lag]) -> int:
    """Return the time for which a query's lag has been growing, in milliseconds; 0 if the lag is small.

    Args:
        history: The batches of the query, oldest first; at least one.
        found: The lags of the query, from `lags`.
    """
    if max((lag.behind_ms for lag in found), default=0) < _LEAST_GROWING_MS:
        return 0
    return max(_growing_ms(history, unit) for unit in (RECORDS, VERSIONS))


def _growing_ms(history: Sequence[BatchProgress], unit: str) -> int:
    now, since = behind(history[-1], unit), history[-1]
    for batch in islice(reversed(history), 1, None):
        if behind(batch, unit) >= now:
            break
        since = batch
    return planned_ms(history[-1]) - planned_ms(since)


def behind(batch: BatchProgress, unit: str = RECORDS) -> int:
    """Return the number of unread records, or versions of tables, after the planning of a batch."""
    return sum(position.behind for _, position in _positions(batch) if position.unit == unit)


def wait_by_batch(history: Sequence[BatchProgress]) -> dict[int, int]:
    """Return, for each batch, the waiting time of its oldest unread record at its commit.

    Batches whose sources do not report their ends are missing. The waiting time of a record older than the
    known batches is counted from the first of them.

    Args:
        history: The batches of the query, oldest first.
    """
    ends: dict[_Place, _Ends] = {}
    waits: dict[int, int] = {}
    for batch in history:
        at_ms = planned_ms(batch)
        for place, position in _positions(batch):
            seen = ends.setdefault(place, _Ends())
            seen.add(at_ms, position.latest)
            wait_ms = batch.committed_ms - seen.arrival_ms(position.next) if position.behind else 0
            waits[batch.batch_id] = max(waits.get(batch.batch_id, 0), wait_ms)
    return waits


@dataclass(slots=True)
class _Ends:
    """The ends of a partition over time."""

    at_ms: list[int] = field(default_factory=list)
    latest: list[int] = field(default_factory=list)

    def add(self, at_ms: int, latest: int) -> None:
        """Add a newer end; a smaller one means that the topic was recreated."""
        if self.latest and latest < self.latest[-1]:
            self.at_ms.clear()
            self.latest.clear()
        self.at_ms.append(at_ms)
        self.latest.append(latest)

    def arrival_ms(self, offset: int) -> int:
        """Return the estimated arrival time of a record before the newest end."""
        later = bisect_right(self.latest, offset)
        if later == 0:
            return self.at_ms[0]
        former_ms, former = self.at_ms[later - 1], self.latest[later - 1]
        part = (offset - former) / (self.latest[later] - former)
        return round(former_ms + part * (self.at_ms[later] - former_ms))


def planned_ms(batch: BatchProgress) -> int:
    """Return the approximate time at which a batch was planned."""
    return batch.committed_ms - batch.duration_ms


def _waits(history: Sequence[BatchProgress], now_ms: int) -> dict[_Place, tuple[int, bool]]:
    """Return the waiting time of each partition's first unread record, and whether it is a lower bound.

    Cost: one pass back over the batches, until each lagging partition has a batch before the arrival of its
    first unread record.
    """
    at_ms = planned_ms(history[-1])
    # The end of each partition and its time, at the oldest batch so far that had the record.
    later = {
        place: (at_ms, position.latest, position.next)
        for place, position in _positions(history[-1])
        if position.behind
    }
    found: dict[_Place, tuple[int, bool]] = {}
    for batch in islice(reversed(history), 1, None):
        if not later:
            break
        at_ms = planned_ms(batch)
        for place, position in _positions(batch):
            if place not in later:
                continue
            later_ms, later_end, unread = later[place]
            if position.latest > unread:
                later[place] = at_ms, position.latest, unread
                continue
            part = (unread - position.latest) / (later_end - position.latest)
            found[place] = max(now_ms - round(at_ms + part * (later_ms - at_ms)), 0), False
            del later[place]
    found.update({place: (max(now_ms - later_ms, 0), True) for place, (later_ms, _, _) in later.items()})
    return found


def _positions(batch: BatchProgress) -> Iterator[tuple[_Place, PartitionPosition]]:
    """Yield the position of a batch in each partition of each source."""
    for source in batch.sources:
        for position in source.positions:
            yield (source.source, position.topic, position.partition), position
