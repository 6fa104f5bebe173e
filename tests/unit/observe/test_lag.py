"""How far a query is behind, against a plain model in which the time of every record is known."""

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model import VERSIONS, BatchProgress, PartitionPosition, SourceProgress
from holdfast.observe.batch_numbers import query_samples
from holdfast.observe.lag import Lag, growing_ms, lags, wait_by_batch

MINUTE = 60_000


def batch(number: int, planned_ms: int, *positions: PartitionPosition, source: int = 0) -> BatchProgress:
    """A batch that was planned then and took a second."""
    sources = (SourceProgress(source, "KafkaV2[Subscribe[orders]]", 0, positions),)
    return BatchProgress("q", number, planned_ms + 1_000, 0, 1_000, None, (), sources=sources)


def at(next_: int, latest: int, partition: int | None = 0, topic: str = "orders") -> PartitionPosition:
    return PartitionPosition(topic, partition, next_, latest)


def one(history: list[BatchProgress], now_ms: int) -> Lag:
    (found,) = lags(history, now_ms)
    return found


def test_who_has_read_everything_is_not_behind() -> None:
    found = one([batch(0, 0, at(3, 9)), batch(1, MINUTE, at(9, 9))], 5 * MINUTE)
    assert (found.records, found.behind_ms, found.at_least) == (0, 0, False)


def test_a_record_came_between_two_batches() -> None:
    """Ten records between minute 1 and minute 2: number 14, the first unread, at 4 tenths of it."""
    history = [batch(0, MINUTE, at(5, 10)), batch(1, 2 * MINUTE, at(14, 20))]
    found = one(history, 3 * MINUTE)
    assert (found.records, found.behind_ms, found.at_least) == (6, 3 * MINUTE - 84_000, False)


def test_a_record_that_was_there_before_all_known_batches_has_waited_longer() -> None:
    history = [batch(0, MINUTE, at(2, 10)), batch(1, 2 * MINUTE, at(4, 20))]
    found = one(history, 3 * MINUTE)
    assert (found.behind_ms, found.at_least) == (2 * MINUTE, True)


def test_partitions_and_sources_are_told_apart() -> None:
    before = batch(0, 0, at(5, 5, 0), at(9, 9, 1), at(1, 1, 0, "refunds"))
    now = batch(1, MINUTE, at(5, 7, 0), at(9, 9, 1), at(1, 11, 0, "refunds"))
    found = lags([before, now], MINUTE)
    assert [(lag.topic, lag.partition, lag.records, lag.behind_ms) for lag in found] == [
        ("orders", 0, 2, MINUTE),
        ("orders", 1, 0, 0),
        ("refunds", 0, 10, MINUTE),
    ]


def test_it_grows_for_as_long_as_less_was_left() -> None:
    """Left: 9, 2, 4, 6, 8 with a minute between: less than 8 since the second one, three minutes ago."""
    left = [9, 2, 4, 6, 8]
    history = [batch(number, number * MINUTE, at(0, rows)) for number, rows in enumerate(left)]
    assert growing_ms(history, lags(history, 5 * MINUTE)) == 3 * MINUTE
    # Rows come in waves: who is not a minute behind is not said to fall behind.
    caught = [batch(0, 0, at(5, 5)), batch(1, 1_000, at(5, 6)), batch(2, 2_000, at(5, 7))]
    assert growing_ms(caught, lags(caught, 3_000)) == 0


def test_the_numbers_of_a_query() -> None:
    history = [batch(0, 0, at(5, 5), at(0, 0, 1)), batch(1, MINUTE, at(5, 15), at(0, 5, 1))]
    numbers = {
        (each.metric, each.labels[2:]): each.value
        for each in query_samples("job", history, 2 * MINUTE)
        if "lag" in each.metric
    }
    assert numbers == {
        ("holdfast_lag_records", ()): 15,
        ("holdfast_lag_seconds", ()): 120,
        ("holdfast_lag_growing_seconds", ()): 60,
        ("holdfast_source_lag_records", ("0", "orders", "0")): 10,
        ("holdfast_source_lag_seconds", ("0", "orders", "0")): 120,
        ("holdfast_source_lag_records", ("0", "orders", "1")): 5,
        ("holdfast_source_lag_seconds", ("0", "orders", "1")): 120,
    }


def test_a_table_has_numbers_of_its_own() -> None:
    table = PartitionPosition("s3://lake/orders", None, 7, 10, VERSIONS)
    before = PartitionPosition("s3://lake/orders", None, 7, 7, VERSIONS)
    history = [batch(0, 0, before, at(1, 1)), batch(1, MINUTE, table, at(3, 3))]
    numbers = {
        (each.metric, each.labels[2:]): each.value
        for each in query_samples("job", history, 2 * MINUTE)
        if "lag" in each.metric
    }
    assert numbers == {
        ("holdfast_lag_records", ()): 0,
        ("holdfast_lag_versions", ()): 3,
        ("holdfast_lag_seconds", ()): 120,
        ("holdfast_lag_growing_seconds", ()): 60,
        ("holdfast_source_lag_records", ("0", "orders", "0")): 0,
        ("holdfast_source_lag_versions", ("0", "s3://lake/orders", "all")): 3,
        ("holdfast_source_lag_seconds", ("0", "orders", "0")): 0,
        ("holdfast_source_lag_seconds", ("0", "s3://lake/orders", "all")): 120,
    }


def test_a_source_that_does_not_tell_has_no_numbers() -> None:
    numbers = query_samples("job", [batch(0, 0)], MINUTE)
    assert [each for each in numbers if "lag" in each.metric] == []


@given(
    gaps=st.lists(st.integers(1, 50), min_size=1, max_size=60),
    polls=st.lists(st.integers(1, 400), min_size=2, max_size=12),
    read=st.integers(0, 60),
)
def test_it_is_between_the_two_batches_around_the_record(
    gaps: list[int], polls: list[int], read: int
) -> None:
    """The model knows when each record came; the answer is off by less than two batches are apart."""
    came = [sum(gaps[: number + 1]) for number in range(len(gaps))]
    times = [sum(polls[: number + 1]) for number in range(len(polls))]
    ends = [bisect_left(came, time + 1) for time in times]
    read = min(read, ends[-1])
    history = [
        batch(number, time, at(read, end)) for number, (time, end) in enumerate(zip(times, ends, strict=True))
    ]
    now = times[-1] + 100
    found = one(history, now)
    assert found.records == ends[-1] - read
    if not found.records:
        assert found.behind_ms == 0
    elif found.at_least:
        assert came[read] <= times[0]
        assert found.behind_ms == now - times[0]
    else:
        after = max(time for time, end in zip(times, ends, strict=True) if end <= read)
        before = min(time for time, end in zip(times, ends, strict=True) if end > read)
        assert after < came[read] <= before
        assert now - before <= found.behind_ms <= now - after


@pytest.mark.parametrize("partition", [None, 7])
def test_many_partitions_are_one_series(partition: int | None) -> None:
    numbers = query_samples("job", [batch(0, 0, at(1, 3, partition))], MINUTE)
    (records,) = [each for each in numbers if each.metric == "holdfast_source_lag_records"]
    assert records.named["partition"] == ("all" if partition is None else "7")


def test_how_long_the_oldest_record_had_waited_at_each_batch() -> None:
    history = [
        batch(0, 10_000, at(100, 100)),
        batch(1, 20_000, at(150, 200)),
        batch(2, 30_000, at(150, 200)),
        batch(3, 40_000, at(200, 200)),
    ]
    committed = [each.committed_ms for each in history]
    # Record 150 arrived half-way between the plans of batches 0 and 1, at 15,000.
    assert wait_by_batch(history) == {0: 0, 1: committed[1] - 15_000, 2: committed[2] - 15_000, 3: 0}


def test_a_record_older_than_the_known_batches_counts_from_the_first() -> None:
    history = [batch(0, 10_000, at(50, 100)), batch(1, 20_000, at(60, 100))]
    assert wait_by_batch(history) == {
        0: history[0].committed_ms - 10_000,
        1: history[1].committed_ms - 10_000,
    }


def test_the_longest_wait_of_all_partitions_counts() -> None:
    history = [
        batch(0, 10_000, at(10, 10, 0), at(10, 10, 1)),
        batch(1, 20_000, at(20, 20, 0), at(10, 20, 1)),
    ]
    # Record 10 of partition 1 arrived right after the plan of batch 0.
    assert wait_by_batch(history) == {0: 0, 1: history[1].committed_ms - 10_000}


def test_a_topic_that_was_created_again_begins_anew() -> None:
    history = [batch(0, 10_000, at(100, 100)), batch(1, 20_000, at(5, 10)), batch(2, 30_000, at(10, 10))]
    assert wait_by_batch(history) == {0: 0, 1: history[1].committed_ms - 20_000, 2: 0}


def test_a_batch_without_positions_has_no_wait() -> None:
    assert wait_by_batch([batch(0, 10_000)]) == {}
