"""What the runs of one side amount to."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from holdfast_bench.measure import percentile

if TYPE_CHECKING:
    from holdfast_bench.keyed.keyed_process import Measured

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Figures:
    """All counted batches of one side, from every round.

    Attributes:
        rows: Events in a batch.
        rounds: All that each batch took, from the offsets it was given to its commit, by round.
        add_batch_ms: The part of it that read, computed and wrote state.
        phase_ms: The median of each phase that Spark times, in the middle round.
        changelog_bytes: What a batch wrote to changelogs, on average.
        snapshot_bytes: What snapshots wrote for a batch, on average.
        snapshots: How many snapshots that were.
        worker_bytes: The peak of resident memory of any Python worker, mapped files among it.
        private_bytes: The same of its own memory.
    """

    rows: int
    rounds: tuple[tuple[int, ...], ...]
    add_batch_ms: tuple[int, ...]
    phase_ms: Mapping[str, float]
    changelog_bytes: float
    snapshot_bytes: float
    snapshots: int
    worker_bytes: int
    private_bytes: int

    @property
    def batch_ms(self) -> tuple[int, ...]:
        """The batches of all rounds."""
        return tuple(ms for each in self.rounds for ms in each)

    @property
    def by_round(self) -> tuple[Figures, ...]:
        """The same with the batches of one round each."""
        return tuple(replace(self, rounds=(each,)) for each in self.rounds)

    @property
    def spread(self) -> float:
        """The distance of the slowest round's median from the fastest round's, as a share of the median."""
        medians = [statistics.median(each) for each in self.rounds]
        return (max(medians) - min(medians)) / self.median_ms

    @property
    def median_ms(self) -> float:
        """The time of a batch."""
        return statistics.median(self.batch_ms)

    @property
    def p99_ms(self) -> float:
        """The time that 99 of 100 batches keep below."""
        return percentile(self.batch_ms, 0.99)

    @property
    def events_per_s(self) -> float:
        """The speed to quote."""
        return self.rows * 1000 / self.median_ms

    @property
    def slowest(self) -> float:
        """The slowest batch against the median."""
        return max(self.batch_ms) / self.median_ms

    @property
    def bytes_per_batch(self) -> float:
        """What a batch wrote into the checkpoint's state."""
        return self.changelog_bytes + self.snapshot_bytes

    def as_dict(self, *, latency: bool) -> dict[str, Any]:
        """Plain values for JSON: the time of a batch for latency, else the speed."""
        low, high = min(self.batch_ms), max(self.batch_ms)
        quoted: dict[str, Any] = {"ms": self.median_ms, "min": low, "max": high}
        if not latency:
            speeds = [round(self.rows * 1000 / ms) for ms in (self.median_ms, high, low)]
            times = {"median": self.median_ms, "min": low, "max": high}
            quoted = {
                **dict(zip(("events_per_s", "min", "max"), speeds, strict=True)),
                "batch_ms": times,
            }
        return {
            **quoted,
            "add_batch_ms": statistics.median(self.add_batch_ms),
            "p99_ms": self.p99_ms,
            "spread": round(self.spread, 3),
            "slowest_to_median": round(self.slowest, 3),
            "phase_ms": dict(self.phase_ms),
            "batches": len(self.batch_ms),
            "changelog_bytes_per_batch": round(self.changelog_bytes),
            "snapshot_bytes_per_batch": round(self.snapshot_bytes),
            "snapshots": self.snapshots,
            "worker_mib": round(self.worker_bytes / MIB, 1),
            "worker_private_mib": round(self.private_bytes / MIB, 1),
        }


def figures_of(runs: Sequence[Measured]) -> Figures:
    """Put the rounds of one side together."""
    batches = sum(len(each.trigger_ms) for each in runs)
    return Figures(
        runs[0].rows,
        tuple(each.trigger_ms for each in runs),
        tuple(ms for each in runs for ms in each.add_batch_ms),
        {
            phase: statistics.median(each.phase_ms.get(phase, 0) for each in runs)
            for phase in runs[0].phase_ms
        },
        sum(each.written.changelog for each in runs) / batches,
        sum(each.written.snapshot for each in runs) / batches,
        sum(each.written.snapshots for each in runs),
        max(each.memory.resident_bytes for each in runs),
        max(each.memory.private_bytes for each in runs),
    )
