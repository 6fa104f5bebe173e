"""How far a query is behind its sources, in records and in time.

A source says with each batch how far it has read and how far it could have. So the time at which the first
unread record came lies between two batches: at the earlier one the source did not have it, at the later one
it did. Between the two, records are taken to have come evenly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.json_shapes import JsonShape, in_json
from holdfast.model import BatchProgress, PartitionPosition

# A delay of less is none that grows: rows come in waves.
_LEAST_GROWING_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Lag(JsonShape):
    """How far a query is behind one partition of a source.

    Attributes:
        query: The query's name.
        source: The source's number, as `holdfast offsets` has it.
        topic: The topic.
        partition: The partition; None for all of the topic together, where they are very many.
        next: The first record that is not read, by its offset.
        latest: The offset that the next record to be written will get, when the newest batch was planned.
        behind_ms: For how long the first unread record has waited; 0 where there is none.
        at_least: Whether it has waited longer: it was there before the first batch that is known.
    """

    query: str
    source: int
    topic: str
    partition: int | None
    next: int
    latest: int
    behind_ms: int
    at_least: bool = False

    @property
    @in_json
    def records(self) -> int:
        """How many records are not read."""
        return max(self.latest - self.next, 0)


def lags(history: Sequence[BatchProgress], now_ms: int) -> tuple[Lag, ...]:
    """How far a query is behind each partition of its sources; nothing of sources that do not tell.

    Args:
        history: The query's batches, oldest first; at least one.
        now_ms: The clock.
    """
    batch = history[-1]
    found = []
    for source in batch.sources:
        for position in source.positions:
            behind_ms, at_least = _waited_ms(history, source.source, position, now_ms)
            found.append(
                Lag(
                    batch.query,
                    source.source,
                    position.topic,
                    position.partition,
                    position.next,
                    position.latest,
                    behind_ms,
                    at_least,
                )
            )
    return tuple(found)


def growing_ms(history: Sequence[BatchProgress], found: Sequence[Lag]) -> int:
    """For how long a query has been less behind than now; 0 where it is hardly behind.

    Args:
        history: The query's batches, oldest first; at least one.
        found: What `lags` says of it.
    """
    if max((lag.behind_ms for lag in found), default=0) < _LEAST_GROWING_MS:
        return 0
    now, since = behind(history[-1]), history[-1]
    for batch in reversed(history[:-1]):
        if behind(batch) >= now:
            break
        since = batch
    return planned_ms(history[-1]) - planned_ms(since)


def behind(batch: BatchProgress) -> int:
    """How many records were left to be read when a batch had been planned."""
    return sum(position.behind for source in batch.sources for position in source.positions)


def planned_ms(batch: BatchProgress) -> int:
    """About when a batch was planned."""
    return batch.committed_ms - batch.duration_ms


def _waited_ms(
    history: Sequence[BatchProgress], source: int, position: PartitionPosition, now_ms: int
) -> tuple[int, bool]:
    if position.latest <= position.next:
        return 0, False
    later_ms, later = planned_ms(history[-1]), position.latest
    for at_ms, latest in _latest(history, source, position):
        if latest <= position.next:
            part = (position.next - latest) / (later - latest)
            return max(now_ms - round(at_ms + part * (later_ms - at_ms)), 0), False
        later_ms, later = at_ms, latest
    return max(now_ms - later_ms, 0), True


def _latest(
    history: Sequence[BatchProgress], source: int, position: PartitionPosition
) -> Iterator[tuple[int, int]]:
    """When a partition ended where, the newest batch before the last one first."""
    for batch in reversed(history[:-1]):
        for progress in batch.sources:
            for each in progress.positions if progress.source == source else ():
                if (each.topic, each.partition) == (position.topic, position.partition):
                    yield planned_ms(batch), each.latest
