"""Verify the records of both topics, and compute the latency of each event.

The latency of an event is the timestamp of the first output record that counts it, minus its time of sending.
As in Spark's own benchmark, the timestamp of an output record is Kafka's CreateTime: the moment at which
Spark's Kafka sink hands the record to its producer, not the moment at which a consumer receives it.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from holdfast.errors import Failed
from holdfast_bench.measure import percentile

# A producer that takes longer than this share of the planned time did not keep its pace.
_PACE: Final = 1.05


class Event(NamedTuple):
    """An input record."""

    user: int
    amount: float
    sent_ms: int
    partition: int
    offset: int


class Output(NamedTuple):
    """An output record: the count and the sum of a user."""

    user: int
    n: int
    total: float
    created_ms: int


class Batch(NamedTuple):
    """A batch with events, and the offset after its last event in each partition."""

    started_ms: int
    ms: int
    ends: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Run:
    """The figures of one run of one side.

    Attributes:
        batch_ms: The time of each batch in the window.
        latency_ms: The latency of each event sent in the window.
        outputs: The number of output records of the whole run, each of them verified.
    """

    batch_ms: tuple[int, ...]
    latency_ms: tuple[int, ...]
    outputs: int


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one side over all rounds."""

    runs: Sequence[Run]

    @property
    def batch_ms(self) -> list[int]:
        """The time of each batch, of all rounds."""
        return [ms for run in self.runs for ms in run.batch_ms]

    @property
    def latency_ms(self) -> list[int]:
        """The latency of each event, of all rounds."""
        return [ms for run in self.runs for ms in run.latency_ms]

    def spread(self, share: float) -> tuple[int, int]:
        """Return the lowest and the highest percentile that a round has."""
        values = [int(percentile(run.latency_ms, share)) for run in self.runs]
        return min(values), max(values)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        latency = self.latency_ms
        return {
            "batches": len(self.batch_ms),
            "batch_ms": statistics.median(self.batch_ms),
            "p50_ms": percentile(latency, 0.5),
            "p95_ms": percentile(latency, 0.95),
            "p99_ms": percentile(latency, 0.99),
            "max_ms": max(latency),
            "p50_spread_ms": self.spread(0.5),
            "p99_spread_ms": self.spread(0.99),
            "events": len(latency),
            "outputs": sum(run.outputs for run in self.runs),
        }


def evaluate(
    side: str,
    expected: Mapping[int, tuple[int, float]],
    events: Sequence[Event],
    outputs: Sequence[Output],
    batches: Sequence[Batch],
    *,
    since_ms: int,
    row_per_event: bool,
) -> Run:
    """Verify the output of a run and return its figures.

    Args:
        side: The side, for errors.
        expected: The count and the sum of each user, from the numbers of the events.
        events: All input records.
        outputs: All output records.
        batches: All batches with events, in their order.
        since_ms: The start of the window: only events sent and batches started from then on are counted.
        row_per_event: True if the side gives a row per event, False if a row per user and batch.

    Raises:
        Failed: The topics do not hold exactly the records that follow from the events, or no batch started in
            the window.
    """
    events = sorted(events, key=lambda event: (event.partition, event.offset))
    sent: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        sent[event.user].append(event)
    _require_inputs(side, expected, sent)
    _require_outputs(side, _records(sent, batches, row_per_event=row_per_event), outputs)

    counted: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for output in sorted(outputs, key=lambda output: output.n):
        counted[output.user].append((output.n, output.created_ms))
    latency = []
    for user, of_user in sent.items():
        for number, event in enumerate(of_user, start=1):
            if event.sent_ms >= since_ms:
                _, created_ms = counted[user][bisect_left(counted[user], (number, 0))]
                latency.append(created_ms - event.sent_ms)
    last_ms = max(event.sent_ms for event in events)
    batch_ms = tuple(batch.ms for batch in batches if since_ms <= batch.started_ms <= last_ms)
    if not batch_ms:
        raise Failed(
            "no batch started in the measured window",
            where=side,
            found=f"{len(batches)} batches before or after it",
            hint="give more --seconds, or fewer --rows",
        )
    return Run(batch_ms, tuple(latency), len(outputs))


def _records(
    sent: Mapping[int, Sequence[Event]], batches: Sequence[Batch], *, row_per_event: bool
) -> list[tuple[int, int, float]]:
    """Return the user, the count and the sum of each record that the side has to write."""
    ends: dict[int, list[int]] = defaultdict(list)
    for batch in batches:
        for partition, end in batch.ends.items():
            ends[partition].append(end)
    records = []
    for user, events in sent.items():
        total = 0.0
        # The batch of an event is the first that ends after its offset.
        numbers = [bisect_right(ends[event.partition], event.offset) for event in events]
        for n, event in enumerate(events, start=1):
            total += event.amount
            if row_per_event or n == len(events) or numbers[n - 1] != numbers[n]:
                records.append((user, n, total))
    return records


def _require_inputs(
    side: str, expected: Mapping[int, tuple[int, float]], sent: Mapping[int, Sequence[Event]]
) -> None:
    totals = {user: (len(events), sum(event.amount for event in events)) for user, events in sent.items()}
    if totals != expected:
        raise Failed(
            "the input topic does not hold the events that were sent",
            where=side,
            found=f"{sum(n for n, _ in totals.values()):,} events of {len(totals):,} users",
            expected=f"{sum(n for n, _ in expected.values()):,} events of {len(expected):,} users",
        )


def _require_outputs(side: str, records: Sequence[tuple[int, int, float]], outputs: Sequence[Output]) -> None:
    expected, found = Counter(records), Counter((each.user, each.n, each.total) for each in outputs)
    if found == expected:
        return
    missing, extra = expected - found, found - expected
    raise Failed(
        "the output topic does not hold the counts and sums of the events",
        where=side,
        found=f"{len(outputs):,} records, {extra.total():,} wrong{_example(extra)}",
        expected=f"{len(records):,} records, {missing.total():,} missing{_example(missing)}",
    )


def _example(records: Counter[tuple[int, int, float]]) -> str:
    for user, n, total in records:
        return f", such as user {user} with n {n} and total {total}"
    return ""


def require_pace(side: str, first_ms: int, last_ms: int, planned_s: float) -> None:
    """Raise if the producer took much longer than planned.

    Raises:
        Failed: The producer did not keep its pace.
    """
    taken = (last_ms - first_ms) / 1000
    if taken > planned_s * _PACE:
        raise Failed(
            "the producer did not keep its pace",
            where=side,
            found=f"{taken:.1f} s for all events",
            expected=f"{planned_s:.1f} s",
            hint="run the benchmark on an idle machine, or with fewer --rows",
        )
