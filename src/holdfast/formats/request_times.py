"""The histogram of requests to a database, as reported by its state stores through Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

# The limits of the buckets, which are the same in the jar. The last bucket has no limit.
LIMITS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000)
# The counters of a batch: the total time of all requests, and the number of requests in each bucket.
MICROS: Final = "externalRequestMicros"
BUCKETS: Final = (
    *(f"externalRequestsTo{limit}ms" for limit in LIMITS_MS),
    f"externalRequestsOver{LIMITS_MS[-1]}ms",
)
COUNTERS: Final = frozenset({MICROS, *BUCKETS})


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """The latencies of a batch's requests.

    Attributes:
        counts: The number of requests in each bucket.
        seconds: The total time of all requests, in seconds.
    """

    counts: tuple[int, ...]
    seconds: float

    @property
    def count(self) -> int:
        """Return the number of requests."""
        return sum(self.counts)

    def quantile(self, share: float) -> float:
        """Return the time in seconds within which a share of the requests was answered.

        The value is interpolated within its bucket, as by `histogram_quantile` in Prometheus. In the last
        bucket it is the limit of the previous bucket, so the true value may be larger.

        Args:
            share: The share of requests, above 0 and at most 1.
        """
        rank = share * self.count
        below = 0
        for count, (start_ms, end_ms) in zip(self.counts[:-1], pairwise((0, *LIMITS_MS)), strict=True):
            if below + count >= rank:
                return (start_ms + (end_ms - start_ms) * (rank - below) / count) / 1000
            below += count
        return LIMITS_MS[-1] / 1000


def request_times(counters: Mapping[str, int]) -> RequestTimes | None:
    """Return the request times among the counters of a store, or None without requests."""
    times = RequestTimes(tuple(counters.get(name, 0) for name in BUCKETS), counters.get(MICROS, 0) / 1e6)
    return times if times.count else None
