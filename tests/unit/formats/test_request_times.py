"""Quantiles of the requests to a database, computed by hand and compared with all the times themselves."""

from __future__ import annotations

import bisect
import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.formats.request_times import BUCKETS, LIMITS_MS, MICROS, request_times

# Of ten requests four took up to 1 ms, five 2 to 5 ms, and one 100 to 200 ms; 120 ms together.
TEN = {
    "externalRequestsTo1ms": 4,
    "externalRequestsTo5ms": 5,
    "externalRequestsTo200ms": 1,
    "externalRequestMicros": 120_000,
}


@pytest.mark.parametrize(
    ("share", "seconds"),
    [
        # The second of four, which are taken to be evenly spread over the first millisecond.
        (0.2, 0.0005),
        (0.4, 0.001),
        # The first of the five from 2 to 5 ms.
        (0.5, 0.0026),
        (0.9, 0.005),
        (0.95, 0.150),
        (0.99, 0.190),
        (1.0, 0.200),
    ],
)
def test_a_quantile_is_interpolated_in_its_bucket(share: float, seconds: float) -> None:
    times = request_times(TEN)
    assert times is not None
    assert (times.count, times.seconds) == (10, 0.12)
    assert times.quantile(share) == pytest.approx(seconds)


def test_a_quantile_beyond_the_last_limit_is_that_limit() -> None:
    times = request_times({"externalRequestsTo1ms": 1, "externalRequestsOver5000ms": 1, MICROS: 60_000_000})
    assert times is not None
    assert [times.quantile(share) for share in (0.5, 0.99)] == [0.001, 5]


@pytest.mark.parametrize("counters", [{}, {"rocksdbGetCount": 5}, dict.fromkeys([*BUCKETS, MICROS], 0)])
def test_without_requests_there_are_no_times(counters: dict[str, int]) -> None:
    assert request_times(counters) is None


@given(st.lists(st.floats(0.01, 4999), min_size=1, max_size=50), st.sampled_from([0.5, 0.95, 0.99, 1]))
def test_a_quantile_is_in_the_bucket_of_the_true_one(times_ms: list[float], share: float) -> None:
    bucket_of = Counter(BUCKETS[bisect.bisect_left(LIMITS_MS, ms)] for ms in times_ms)
    times = request_times({**bucket_of, MICROS: int(sum(times_ms) * 1000)})
    assert times is not None
    rank = math.ceil(round(share * len(times_ms), 9))
    true_ms = sorted(times_ms)[rank - 1]
    at = bisect.bisect_left(LIMITS_MS, true_ms)
    assert (0, *LIMITS_MS)[at] < times.quantile(share) * 1000 <= LIMITS_MS[at] * (1 + 1e-9)
