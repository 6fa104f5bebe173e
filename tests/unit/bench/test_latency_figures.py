from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.errors import Failed, Invalid, NotFound
from holdfast_bench.latency import kafka_node
from holdfast_bench.latency.latency_bench import Sizes, latency
from holdfast_bench.latency.latency_events import expected_totals
from holdfast_bench.latency.latency_figures import (
    Batch,
    Event,
    Figures,
    Output,
    Run,
    evaluate,
    require_pace,
)

# Two users have one event each before the window, and user 0 two events in the second batch.
EXPECTED = {0: (3, 6.0), 1: (2, 3.0)}
EVENTS = [
    Event(0, 1.0, sent_ms=100, partition=0, offset=0),
    Event(1, 1.0, sent_ms=110, partition=1, offset=0),
    Event(0, 2.0, sent_ms=1000, partition=0, offset=1),
    Event(0, 3.0, sent_ms=1010, partition=0, offset=2),
    Event(1, 2.0, sent_ms=1020, partition=1, offset=1),
]
BATCHES = [
    Batch(started_ms=120, ms=50, ends={0: 1, 1: 1}),
    Batch(started_ms=1015, ms=80, ends={0: 3, 1: 1}),
    Batch(started_ms=1019, ms=60, ends={0: 3, 1: 2}),
    Batch(started_ms=1021, ms=1, ends={0: 3, 1: 2}),
]
OUTPUTS = [
    Output(0, 1, 1.0, created_ms=160),
    Output(1, 1, 1.0, created_ms=161),
    Output(0, 3, 6.0, created_ms=1090),
    Output(1, 2, 3.0, created_ms=1150),
]


def evaluated(
    outputs: list[Output], *, events: list[Event] = EVENTS, row_per_event: bool = False, since_ms: int = 1000
) -> Run:
    return evaluate("sql", EXPECTED, events, outputs, BATCHES, since_ms=since_ms, row_per_event=row_per_event)


def test_latency_is_that_of_each_event_in_the_window() -> None:
    run = evaluated(OUTPUTS)
    assert sorted(run.latency_ms) == [1090 - 1010, 1090 - 1000, 1150 - 1020]
    assert run.batch_ms == (80, 60)  # the first is before the window, the last began after the last event
    assert run.outputs == 4
    assert evaluated(OUTPUTS[::-1], events=EVENTS[::-1]) == run


def test_a_side_with_a_row_per_event_has_the_time_of_each_row() -> None:
    outputs = [*OUTPUTS, Output(0, 2, 3.0, created_ms=1088)]
    assert sorted(evaluated(outputs, row_per_event=True).latency_ms) == [80, 88, 130]


WRONG = "such as user 1 with n"


@pytest.mark.parametrize(
    ("outputs", "found", "expected"),
    [
        (OUTPUTS[:-1], "3 records, 0 wrong", f"4 records, 1 missing, {WRONG} 2 and total 3.0"),
        ([*OUTPUTS, OUTPUTS[1]], f"5 records, 1 wrong, {WRONG} 1 and total 1.0", "4 records, 0 missing"),
        (
            [*OUTPUTS[:-1], Output(1, 2, 2.5, 1150)],
            f"4 records, 1 wrong, {WRONG} 2 and total 2.5",
            f"4 records, 1 missing, {WRONG} 2 and total 3.0",
        ),
    ],
)
def test_results_that_are_not_exact_fail(outputs: list[Output], found: str, expected: str) -> None:
    with pytest.raises(Failed) as raised:
        evaluated(outputs)
    assert raised.value.fact == "the output topic does not hold the counts and sums of the events"
    assert (raised.value.where, raised.value.found, raised.value.expected) == ("sql", found, expected)


def test_events_that_the_broker_lacks_fail() -> None:
    with pytest.raises(Failed, match="the input topic does not hold") as raised:
        evaluated(OUTPUTS, events=EVENTS[:-1])
    assert raised.value.found == "4 events of 2 users"
    assert raised.value.expected == "5 events of 2 users"


def test_a_window_without_a_batch_fails() -> None:
    with pytest.raises(Failed, match="no batch started in the measured window"):
        evaluated(OUTPUTS, since_ms=1020)


def test_percentiles_are_over_all_rounds_and_their_spread_over_each() -> None:
    first = Run((10, 30), tuple(range(1, 101)), outputs=100)
    second = replace(first, batch_ms=(20,), latency_ms=tuple(range(101, 201)))
    assert Figures([first, second]).as_dict() == {
        "batches": 3,
        "batch_ms": 20,
        "p50_ms": 101,
        "p95_ms": 191,
        "p99_ms": 199,
        "max_ms": 200,
        "p50_spread_ms": (51, 151),
        "p99_spread_ms": (100, 200),
        "events": 200,
        "outputs": 200,
    }


def test_a_producer_that_falls_behind_fails() -> None:
    require_pace("sql", 0, 10_400, planned_s=10)
    with pytest.raises(Failed, match="the producer did not keep its pace"):
        require_pace("sql", 0, 10_600, planned_s=10)


def test_totals_follow_from_the_numbers_of_the_events() -> None:
    # Amounts are quarters: (number * 7919 mod 400 + 1) / 4.
    assert expected_totals(2, 3) == {0: (2, 0.25 + 59.75), 1: (1, 80.0)}


def test_without_a_broker_the_error_has_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_node, "HOME", tmp_path)
    with pytest.raises(NotFound, match="Kafka is not installed") as raised:
        latency(Sizes(), rounds=1)
    assert raised.value.hint == "run `make services-kafka`"


def test_an_unknown_side_is_refused() -> None:
    with pytest.raises(Invalid, match="unknown side"):
        latency(Sizes(), rounds=1, sides=["flink"])
