from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from holdfast.errors import Invalid
from holdfast.worker.declarations.state_descriptors import MAX_MS, UNSTAMPED, AgeFrom, Ttl, cutoff_ms
from holdfast.worker.interface import Moment
from holdfast.worker.runtime.ttl import Clocks, TtlRule, expired, read, read_list, times_ms

MIN_MS = -(2**63)
SHOWS: Final = "return_if_not_cleaned_up"


def rule_at(ttl: Ttl, now_ms: int, watermark_ms: int | None = None) -> TtlRule:
    clocks = Clocks()
    moment = Moment(now_ms, watermark_ms, 0)
    clocks.begin(moment)
    rule = TtlRule(ttl, clocks)
    rule.begin(moment)
    return rule


class Entry:
    """One value, its stamp, and reads and writes at given times, through the rules for many at once."""

    def __init__(self, ttl: Ttl) -> None:
        self.ttl = ttl
        self.present = np.array([False])
        self.stamps = np.array([0], np.int64)

    def write(self, now_ms: int) -> None:
        rule = rule_at(self.ttl, now_ms)
        self.present = np.array([True])
        self.stamps = rule.stamps(self.stamps, now_ms)

    def read(self, now_ms: int) -> bool:
        reading = read(rule_at(self.ttl, now_ms), self.present, self.stamps, now_ms)
        self.present, self.stamps = reading.kept, reading.stamps
        return bool(reading.shown[0])


def test_the_boundary_is_inclusive() -> None:
    assert not expired(0, 10, 9)
    assert expired(0, 10, 10)
    assert not expired(-5, 10, 4)
    assert expired(-5, 10, 5)


def test_the_longest_ttl_never_expires() -> None:
    assert not expired(1, MAX_MS, MAX_MS - 1)
    assert not expired(1_700_000_000_000, MAX_MS, 4_000_000_000_000)


# The arithmetic of 64-bit integers, which Python's do not overflow: the sum ends at the largest one.
@pytest.mark.parametrize("stamp", [MIN_MS, -10, -1, 0, 1, 10, 1_700_000_000_000, MAX_MS - 1, MAX_MS])
@pytest.mark.parametrize("duration", [1, 10, 86_400_000, MAX_MS])
@pytest.mark.parametrize("now", [-20, -1, 0, 9, 10, 11, 1_700_086_400_000, MAX_MS - 1, MAX_MS])
def test_the_cutoff_says_the_same_as_the_rule(stamp: int, duration: int, now: int) -> None:
    end = min(stamp + duration, MAX_MS)
    assert expired(stamp, duration, now) == (end <= now)
    assert (stamp <= cutoff_ms(duration, now)) == (end <= now)
    assert bool(np.array([stamp], np.int64)[0] <= cutoff_ms(duration, now)) == (end <= now)


def test_nothing_expires_without_a_watermark() -> None:
    assert cutoff_ms(10, None) < MIN_MS


def test_vector_1_a_value_is_gone_at_its_end() -> None:
    entry = Entry(Ttl(10))
    entry.write(0)
    assert entry.read(9)
    assert not entry.read(10)
    assert not entry.present[0]


def test_vector_2_an_expired_value_is_given_once() -> None:
    entry = Entry(Ttl(10, visibility=SHOWS))
    entry.write(0)
    assert entry.read(10)
    assert not entry.read(10)


def test_vector_3_reads_keep_a_value_alive() -> None:
    entry = Entry(Ttl(10, update="read_and_write"))
    entry.write(0)
    assert entry.read(9)
    assert entry.read(18)
    assert not entry.read(28)


def test_vector_4_reads_do_not_stamp_by_default() -> None:
    entry = Entry(Ttl(10))
    entry.write(0)
    assert entry.read(9)
    assert not entry.read(18)


def test_vector_5_a_list_shows_what_is_alive_and_leaves_as_a_whole() -> None:
    first = read_list(rule_at(Ttl(10), 12), [0, 5])
    assert (list(first.shown), list(first.removed), list(first.restamped)) == ([1], [], [])
    second = read_list(rule_at(Ttl(10), 15), [0, 5])
    assert (list(second.shown), list(second.removed)) == ([], [0, 1])


def test_a_refreshing_read_writes_the_list_anew() -> None:
    reading = read_list(rule_at(Ttl(10, update="read_and_write"), 12), [0, 5])
    assert (list(reading.shown), list(reading.removed), list(reading.restamped)) == ([1], [0], [1])


def test_a_list_may_show_what_has_expired() -> None:
    some = read_list(rule_at(Ttl(10, visibility=SHOWS), 12), [0, 5])
    assert (list(some.shown), list(some.removed)) == ([0, 1], [])
    none = read_list(rule_at(Ttl(10, visibility=SHOWS), 15), [0, 5])
    assert (list(none.shown), list(none.removed)) == ([0, 1], [0, 1])


def test_an_empty_list_stays_empty() -> None:
    reading = read_list(rule_at(Ttl(10, update="read_and_write"), 12), [])
    assert (list(reading.shown), list(reading.removed), list(reading.restamped)) == ([], [], [])


def test_a_refreshing_read_does_not_stamp_what_it_gives_a_last_time() -> None:
    rule = rule_at(Ttl(10, update="read_and_write", visibility=SHOWS), 10)
    reading = read(rule, np.array([True, True, False]), np.array([0, 5, 0]), 10)
    assert reading.shown.tolist() == [True, True, False]
    assert reading.kept.tolist() == [False, True, False]
    assert reading.stamps.tolist() == [0, 10, 0]


def test_event_time_expires_by_the_watermark_and_stamps_by_the_event() -> None:
    rule = rule_at(Ttl(10, clock="event"), now_ms=1_000_000, watermark_ms=20)
    assert rule.cutoff == 10
    rule.clock.stamp = 25
    assert rule.stamp(None) == 25
    assert rule.stamp(18) == 25
    assert rule.stamp(30) == 30
    assert rule.stamps(np.array([18, 30]), 25).tolist() == [25, 30]


def test_processing_time_stamps_by_the_batch() -> None:
    rule = rule_at(Ttl(10), now_ms=100, watermark_ms=20)
    assert rule.stamp(300) == 100
    assert rule.stamps(np.array([300, 0]), 100).tolist() == [100, 100]


# Vector 8: switched on at 100 with 10, a value lives until 109.
@pytest.mark.parametrize(("age_from", "origin"), [("restore", 100), (95, 95)])
def test_a_value_without_a_stamp_has_the_age_that_was_chosen(age_from: AgeFrom, origin: int) -> None:
    rule = rule_at(Ttl(10, age_from=age_from), 100)
    assert rule.origin == origin
    assert not expired(rule.origin, 10, origin + 9)
    assert expired(rule.origin, 10, origin + 10)


def test_between_events_the_event_clock_is_the_watermark() -> None:
    clocks = Clocks()
    clocks.begin(Moment(5, 7, None))
    assert (clocks.processing.stamp, clocks.event.stamp) == (5, 7)
    clocks.begin(Moment(5, None, None))
    assert clocks.event.stamp == UNSTAMPED
    clocks.begin(Moment(5, 0, None))  # as Spark gives it in the first batch
    assert clocks.event.stamp == UNSTAMPED


def micros(*values: int | None) -> pa.Array:
    return pa.array(values, pa.timestamp("us", "UTC"))


@pytest.mark.parametrize(
    "column",
    [
        micros(1_999, -1, None),
        pa.chunked_array([micros(1_999), micros(-1, None)]),
        pa.array([1_999_999, -1, None], pa.timestamp("ns")),
    ],
)
def test_event_times_are_rounded_down_and_null_is_the_watermark(column: Any) -> None:
    assert times_ms(column, 50).tolist() == [1, -1, 50]


def test_coarse_event_times_are_milliseconds_too() -> None:
    assert times_ms(pa.array([3], pa.timestamp("s")), 0).tolist() == [3_000]
    assert times_ms(pa.array([3], pa.timestamp("ms")), 0).tolist() == [3]


def test_a_time_column_holds_times() -> None:
    make: Callable[[], Any] = lambda: times_ms(pa.array(["noon"]), 0)  # noqa: E731
    with pytest.raises(Invalid, match="must be a timestamp"):
        make()
