"""Quantiles of the accesses to state, computed by hand and compared with all the times themselves."""

from __future__ import annotations

import bisect
import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.formats.access_times import (
    BUCKETS,
    KEYED_BUCKETS,
    KEYED_LIMITS_US,
    LIMITS_MS,
    MICROS,
    keyed_bucket,
    keyed_times,
    request_times,
)

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


@pytest.mark.parametrize(
    ("nanos", "bucket"),
    [
        (1, "accesses_to_64us"),
        (64_000, "accesses_to_64us"),
        (64_001, "accesses_to_128us"),
        (1_000_000, "accesses_to_1024us"),
        (16_777_216_000, "accesses_to_16777216us"),
        (16_777_216_001, "accesses_over_16777216us"),
    ],
)
def test_an_access_counts_in_the_first_bucket_that_holds_it(nanos: int, bucket: str) -> None:
    assert keyed_bucket(nanos) == bucket


def test_reads_and_writes_of_a_keyed_operator_have_quantiles() -> None:
    # Of four, two took 64 to 128 µs, one 256 to 512 µs, and one longer than any limit.
    counts = [0] * len(KEYED_BUCKETS)
    counts[1], counts[3], counts[-1] = 2, 1, 1
    times = keyed_times(counts)
    assert times is not None
    assert [times.quantile(share) for share in (0.25, 0.5, 0.75, 1)] == pytest.approx(
        [96e-6, 128e-6, 512e-6, 16.777216]
    )
    assert keyed_times(()) is keyed_times([0] * len(KEYED_BUCKETS)) is None


@given(st.lists(st.integers(1, 16_000_000_000), min_size=1, max_size=50), st.sampled_from([0.5, 0.99, 1]))
def test_a_keyed_quantile_is_less_than_twice_the_true_one(times_ns: list[int], share: float) -> None:
    counted = Counter(map(keyed_bucket, times_ns))
    times = keyed_times([counted[bucket] for bucket in KEYED_BUCKETS])
    assert times is not None
    true_us = sorted(times_ns)[math.ceil(share * len(times_ns)) - 1] / 1000
    limit = next(limit for limit in KEYED_LIMITS_US if true_us <= limit)
    assert (limit / 2 if limit > KEYED_LIMITS_US[0] else 0) < times.quantile(share) * 1e6 <= limit * 1.0001
