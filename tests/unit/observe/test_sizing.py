"""Whether a query has what it needs; every number is worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.model import BatchProgress, OperatorProgress, TaskTimes
from holdfast.observe.sizing import Provision, Sizing, Sureness, sizing

MORNING = 1_772_697_600_000
MIB = 1024 * 1024


def operator(**changed: Any) -> OperatorProgress:
    fields = {
        "name": "dedupe",
        "rows": 40,
        "updated": 4,
        "removed": 1,
        "late_rows": 0,
        "memory_bytes": 900,
        "commit_ms": 75,
        "partitions": 4,
        "store": {"rocksdbSstFileSize": 5_000},
    }
    return OperatorProgress(**{**fields, **changed})


def batches(number: int = 20, tasks: TaskTimes | None = None, **changed: Any) -> list[BatchProgress]:
    """Equal batches, ten seconds apart, of a query with an interval of ten seconds on four cores."""
    fields = {
        "query": "visits",
        "input_rows": 40_000,
        "duration_ms": 5_000,
        "watermark": None,
        "operators": (operator(),),
        "phases_ms": {"addBatch": 4_500},
        "interval_ms": 10_000,
        "cores": 4,
        "tasks": tasks or TaskTimes(jobs_ms=4_500, run_ms=16_000, longest_ms=1_200),
    }
    return [
        BatchProgress(batch_id=each, committed_ms=MORNING + each * 10_000, **{**fields, **changed})
        for each in range(number)
    ]


def told(history: list[BatchProgress], limit_ms: float | None = 60_000, after_ms: int = 1_000) -> Sizing:
    return sizing(history, history[-1].committed_ms + after_ms, limit_ms)


def test_half_of_the_interval_is_right() -> None:
    # The driver has 500 ms of 5 s, and the longest tasks 1.2 s: with any number of cores 1.7 s.
    found = told(batches())
    assert (found.state, found.sureness) == (Provision.RIGHT, Sureness.HIGH)
    assert (found.batch_ms, found.critical_ms, found.allowed_ms) == (5_000, 1_700, 10_000)
    # 40,000 rows fill four tasks of 10,000.
    assert (found.partitions, found.recommended_partitions) == (4, 4)
    assert (found.cores, found.recommended_cores) == (4, 4)
    assert found.why == (
        "a batch takes 5.0 s, 50.0% of 10.0 s, the trigger interval",
        "that is enough headroom; with any number of cores it would take at least 1.7 s",
    )


def test_a_batch_that_is_soon_over_has_too_much() -> None:
    tasks = TaskTimes(jobs_ms=1_500, run_ms=5_500, longest_ms=400)
    found = told(batches(tasks=tasks, duration_ms=2_000))
    # 5 s less 500 ms of the driver are 4.5 s for 5.5 s of work: two cores.
    assert (found.state, found.recommended_cores) == (Provision.OVER_PROVISIONED, 2)
    assert "2 cores would do the work in half of the time; there are 4" in found.why


def test_a_batch_that_more_cores_would_shorten_has_too_little() -> None:
    # 12 s of 10 s; at least 500 ms + 2 s. 44 s of work in 4.5 s are 9.8 cores, and partitions for them: 16.
    tasks = TaskTimes(jobs_ms=11_500, run_ms=44_000, longest_ms=2_000)
    found = told(batches(tasks=tasks, duration_ms=12_000))
    assert (found.state, found.critical_ms) == (Provision.UNDER_PROVISIONED, 2_500)
    assert (found.recommended_cores, found.recommended_partitions) == (10, 16)


def test_a_batch_that_no_number_of_cores_would_shorten_is_unhealthy() -> None:
    # The driver alone takes 8 s of 9 s.
    tasks = TaskTimes(jobs_ms=1_000, run_ms=1_000, longest_ms=300)
    found = told(batches(tasks=tasks, duration_ms=9_000))
    assert (found.state, found.critical_ms) == (Provision.UNHEALTHY, 8_300)
    assert found.recommended_cores is None
    assert "the driver alone takes 8.0 s of that: set a trigger interval of at least 16.6 s" in found.why


def test_one_long_task_makes_a_query_unhealthy_and_is_named() -> None:
    # 8 s of the 9 s are one task, and four cores would share 12 s in 3 s.
    tasks = TaskTimes(jobs_ms=8_500, run_ms=12_000, longest_ms=8_000)
    found = told(batches(tasks=tasks, duration_ms=9_000))
    assert (found.state, found.critical_ms) == (Provision.UNHEALTHY, 8_500)
    assert "a few tasks do most of the work: check for hot keys with `holdfast skew`" in found.why
    # 12 s of work in 4.5 s are three cores.
    assert found.recommended_cores == 3


def test_many_partitions_of_few_rows_are_too_many() -> None:
    tasks = TaskTimes(jobs_ms=4_500, run_ms=18_000, longest_ms=150)
    found = told(batches(tasks=tasks, input_rows=100, operators=(operator(partitions=200),)))
    # 100 rows are less than a task's worth: one partition, and with it a two-hundredth of the work, 90 ms.
    assert (found.partitions, found.recommended_partitions) == (200, 1)
    assert found.why[-1] == (
        "each of 200 partitions has less than one row per batch and 25 B of state: 1 partition recommended,"
        " with `holdfast rescale`"
    )


@pytest.mark.parametrize(("present", "right"), [(2, 4), (4, 4), (16, 16), (17, 4), (200, 4)])
def test_up_to_four_times_too_many_partitions_stay(present: int, right: int) -> None:
    tasks = TaskTimes(jobs_ms=3_000, run_ms=3_000, longest_ms=900)
    found = told(batches(tasks=tasks, operators=(operator(partitions=present),)))
    assert found.recommended_partitions == right


def test_much_state_needs_partitions_though_few_rows_come() -> None:
    # 3 GiB in parts of 512 MiB are six, and eight is the next power of two.
    large = operator(store={"rocksdbSstFileSize": 3 * 1024 * MIB}, partitions=2)
    tasks = TaskTimes(jobs_ms=1_000, run_ms=1_000, longest_ms=500)
    assert told(batches(tasks=tasks, input_rows=10, operators=(large,))).recommended_partitions == 8


def test_no_more_than_four_times_the_cores_are_asked_for_at_once() -> None:
    tasks = TaskTimes(jobs_ms=99_000, run_ms=390_000, longest_ms=2_000)
    found = told(batches(tasks=tasks, duration_ms=100_000))
    # 390 s in 4 s would be 98 cores.
    assert (found.recommended_cores, found.recommended_partitions) == (16, 16)


def test_work_is_not_split_into_tasks_of_less_than_a_tenth_of_a_second() -> None:
    # 350 ms of work for an interval of 1 ms: four tasks, and not sixteen.
    tasks = TaskTimes(jobs_ms=100, run_ms=350, longest_ms=90)
    found = told(batches(tasks=tasks, duration_ms=120, interval_ms=1))
    assert (found.state, found.recommended_partitions) == (Provision.UNHEALTHY, 4)
    one = TaskTimes(jobs_ms=100, run_ms=100, longest_ms=90)
    single = batches(tasks=one, duration_ms=120, interval_ms=1, operators=(operator(partitions=1),))
    # 40,000 rows are for four all the same.
    assert told(single).recommended_partitions == 4
    fewer = batches(
        tasks=one, duration_ms=120, interval_ms=1, input_rows=10, operators=(operator(partitions=1),)
    )
    assert told(fewer).recommended_partitions == 1


def test_more_work_never_asks_for_fewer_partitions() -> None:
    # Ten partitions for the rows, at every number of cores from one to sixteen and more.
    one = (operator(partitions=1),)
    right = [
        told(
            batches(1, TaskTimes(4_500, run_ms, 900), input_rows=95_000, operators=one)
        ).recommended_partitions
        for run_ms in range(1_000, 100_000, 1_000)
    ]
    assert right == sorted(right, key=lambda number: number or 0)
    assert (right[0], right[-1]) == (16, 16)


def test_without_an_interval_the_alert_says_how_long_a_batch_may_take() -> None:
    tasks = TaskTimes(jobs_ms=1_500, run_ms=5_500, longest_ms=400)
    found = told(batches(tasks=tasks, duration_ms=2_000, interval_ms=None))
    # It is not too much: batches follow each other, so that no core is idle while there are rows.
    assert (found.state, found.allowed_ms, found.recommended_cores) == (Provision.RIGHT, 60_000, 4)
    assert told(batches(interval_ms=None), limit_ms=4_000).state is Provision.UNDER_PROVISIONED


def test_without_any_limit_nothing_is_said_of_the_state() -> None:
    found = told(batches(interval_ms=None), limit_ms=None)
    assert (found.state, found.sureness, found.recommended_cores) == (
        Provision.UNKNOWN,
        Sureness.LOW,
        None,
    )
    assert found.recommended_partitions == 4


def test_a_query_without_state_needs_no_partitions_and_no_memory_for_it() -> None:
    found = told(batches(operators=()))
    assert (found.partitions, found.recommended_partitions) == (None, None)
    assert (found.memory_bytes, found.recommended_memory_bytes) == (None, None)


@pytest.mark.parametrize(("after_ms", "quiet"), [(600_000, False), (600_001, True)])
def test_ten_minutes_without_a_batch_with_rows_are_no_new_batches(after_ms: int, *, quiet: bool) -> None:
    found = told(batches(), after_ms=after_ms)
    assert (found.state is Provision.NO_NEW_BATCHES) == quiet
    assert (found.recommended_partitions is None) == quiet


def test_ten_intervals_without_a_batch_with_rows_are_no_new_batches_where_they_are_longer() -> None:
    hourly = batches(interval_ms=3_600_000)
    assert told(hourly, after_ms=36_000_000).state is not Provision.NO_NEW_BATCHES
    assert told(hourly, after_ms=36_000_001).state is Provision.NO_NEW_BATCHES


def test_batches_without_rows_are_none() -> None:
    found = told(batches(3, input_rows=0))
    assert (found.state, found.why) == (Provision.NO_NEW_BATCHES, ("none of 3 batches had rows",))


def test_nothing_was_seen_of_a_new_query() -> None:
    assert sizing([], MORNING, 60_000).state is Provision.NO_NEW_BATCHES


def test_one_slow_batch_of_ten_decides_nothing() -> None:
    history = batches(19)
    history[0] = batches(1, duration_ms=100_000)[0]
    assert told(history).state is Provision.RIGHT


def test_without_the_times_of_tasks_bounds_decide() -> None:
    def without(**changed: Any) -> Sizing:
        history = batches(**changed)
        bare = [
            BatchProgress(
                **{name: getattr(each, name) for name in each.__dataclass_fields__ if name != "tasks"}
            )
            for each in history
        ]
        return told(bare)

    # 500 ms around the rows are the least that is known.
    right = without()
    assert (right.state, right.sureness, right.critical_ms) == (Provision.RIGHT, Sureness.FAIR, 500)
    assert right.critical_known is False
    # More cores may help, or may not.
    under = without(duration_ms=9_000, phases_ms={"addBatch": 8_500})
    assert (under.state, under.sureness) == (Provision.UNDER_PROVISIONED, Sureness.LOW)
    # 8 s around the rows are too long whatever the tasks do.
    hopeless = without(duration_ms=9_000, phases_ms={"addBatch": 1_000})
    assert (hopeless.state, hopeless.sureness) == (Provision.UNHEALTHY, Sureness.FAIR)


@pytest.mark.parametrize(
    ("number", "sureness"), [(4, Sureness.LOW), (5, Sureness.FAIR), (19, Sureness.FAIR), (20, Sureness.HIGH)]
)
def test_more_batches_make_it_surer(number: int, sureness: Sureness) -> None:
    assert told(batches(number)).sureness is sureness


def test_uneven_batches_make_it_less_sure() -> None:
    # Three of twenty take more than twice what the others take.
    history = [*batches(17, duration_ms=1_000), *batches(20, duration_ms=2_001)[17:]]
    assert told(history).sureness is Sureness.FAIR


def test_memory_has_a_quarter_of_room() -> None:
    history = batches(operators=(operator(memory_bytes=100 * MIB),))
    history[3] = batches(4, operators=(operator(memory_bytes=120 * MIB),))[3]
    found = told(history)
    assert (found.memory_bytes, found.recommended_memory_bytes) == (120 * MIB, 150 * MIB)


@pytest.mark.parametrize(
    ("size", "right"),
    [
        (1_000 * MIB, 250 * MIB),  # 100 MiB, as much again, and a quarter
        (140 * MIB, 175 * MIB),  # no more than there is on disk: 140 MiB and a quarter
        (50 * MIB, 125 * MIB),  # all of it would fit already
    ],
)
def test_reads_that_miss_their_cache_ask_for_more_memory(size: int, right: int) -> None:
    store = {
        "rocksdbSstFileSize": size,
        "rocksdbReadBlockCacheHitCount": 79,
        "rocksdbReadBlockCacheMissCount": 21,
    }
    missing = operator(memory_bytes=100 * MIB, store=store)
    assert told(batches(operators=(missing,))).recommended_memory_bytes == right


def test_in_real_time_mode_a_batch_as_long_as_its_interval_says_nothing() -> None:
    busy = batches(duration_ms=10_000)
    assert told(busy).state is not Provision.UNKNOWN
    at_once = told(batches(duration_ms=10_000, real_time=True))
    assert at_once.state is Provision.UNKNOWN
    assert at_once.why[0] == (
        "in real-time mode a batch lasts for the whole trigger interval, whatever arrives"
    )
