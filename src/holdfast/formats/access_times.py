"""Histograms of the times of state accesses, which tasks count and a batch adds up.

A database's state stores count their requests, and report them through Spark. The tasks of a keyed operator
count their reads and writes of state.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

# The limits of the buckets of requests, which are the same in the jar. The last bucket has no limit.
LIMITS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000)
# The counters of a batch: the total time of all requests, and the number of requests in each bucket.
MICROS: Final = "externalRequestMicros"
BUCKETS: Final = (
    *(f"externalRequestsTo{limit}ms" for limit in LIMITS_MS),
    f"externalRequestsOver{LIMITS_MS[-1]}ms",
)
COUNTERS: Final = frozenset({MICROS, *BUCKETS})

# The limits of the buckets of a keyed operator's reads and writes: each is twice the one before.
KEYED_LIMITS_US: Final = tuple(64 << power for power in range(19))
# The counts of a task: the number of reads and writes in each bucket. The last bucket has no limit.
KEYED_BUCKETS: Final = (
    *(f"accesses_to_{limit}us" for limit in KEYED_LIMITS_US),
    f"accesses_over_{KEYED_LIMITS_US[-1]}us",
)

_REQUEST_LIMITS_US: Final = tuple(limit * 1000 for limit in LIMITS_MS)


@dataclass(frozen=True, slots=True)
class AccessTimes:
    """The times of a batch's accesses.

    Attributes:
        limits_us: The upper limit of each bucket but the last, in microseconds, in ascending order.
        counts: The number of accesses in each bucket.
        seconds: The total time of all accesses in seconds; 0 if it is not counted here.
    """

    limits_us: Sequence[int]
    counts: Sequence[int]
    seconds: float = 0.0

    @property
    def count(self) -> int:
        """Return the number of accesses."""
        return sum(self.counts)

    def quantile(self, share: float) -> float:
        """Return the time in seconds within which a share of the accesses ended.

        The value is interpolated within its bucket, as by `histogram_quantile` in Prometheus. In the last
        bucket it is the limit of the previous bucket, so the true value may be larger.

        Args:
            share: The share of accesses, above 0 and at most 1.
        """
        rank = share * self.count
        below = 0
        for count, (start_us, end_us) in zip(self.counts[:-1], pairwise((0, *self.limits_us)), strict=True):
            if count and below + count >= rank:
                return (start_us + (end_us - start_us) * (rank - below) / count) / 1_000_000
            below += count
        return self.limits_us[-1] / 1_000_000


def request_times(counters: Mapping[str, int]) -> AccessTimes | None:
    """Return the request times among the counters of a store, or None without requests."""
    counts = tuple(counters.get(name, 0) for name in BUCKETS)
    times = AccessTimes(_REQUEST_LIMITS_US, counts, counters.get(MICROS, 0) / 1e6)
    return times if times.count else None


def keyed_times(counts: Sequence[int]) -> AccessTimes | None:
    """Return the times of a keyed operator's reads and writes, or None without any.

    Args:
        counts: The number of reads and writes in each bucket of `KEYED_BUCKETS`; empty if not counted.
    """
    times = AccessTimes(KEYED_LIMITS_US, counts)
    return times if times.count else None


def keyed_bucket(nanos: int) -> str:
    """Return the name of the bucket of a read or write: the first whose limit it does not exceed."""
    return KEYED_BUCKETS[bisect_left(KEYED_LIMITS_US, -(-nanos // 1000))]
