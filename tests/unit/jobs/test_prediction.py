from __future__ import annotations

from holdfast.jobs.recovery import PHASES, RecoveryTimes, StateSize, Stopwatch, predict, sample_of
from holdfast.model import BatchProgress
from holdfast.plain_values import from_known
from holdfast.savepoints.catalog import Drill


def recovery(number: int, size: StateSize | None = None, **phases: int) -> RecoveryTimes:
    return RecoveryTimes(
        number, number * 1000, "source: away", {**dict.fromkeys(PHASES, 0), **phases}, size=size
    )


def batch(committed_ms: int, duration_ms: int, load_ms: int | None, commit_ms: int) -> BatchProgress:
    return BatchProgress(
        "q", 7, committed_ms, 100, duration_ms, None, (), load_ms=load_ms, commit_ms=commit_ms
    )


def test_a_recovery_by_phase() -> None:
    watch = Stopwatch(failed=1000, cause="state: x", ended=1400)
    watch.resumed, watch.verify_ms, watch.running, watch.slots = 3400, 250, 9000, 4
    # Began at 9500, half a second after the queries ran: there was nothing to read until then.
    found = watch.recovery(3, batch(committed_ms=12_500, duration_ms=3000, load_ms=4000, commit_ms=200))
    assert found.phases_ms == {
        "detect": 400,
        "pause": 2000,
        "verify": 250,
        "start": 5350,
        "load": 1000,
        "replay": 1800,
        "commit": 200,
    }
    assert (found.recovery_ms, found.idle_ms, found.attempt) == (11_000, 500, 3)
    assert found.recovery_ms + found.idle_ms == 12_500 - 1000
    assert from_known(RecoveryTimes, found.as_dict()) == found


def test_phases_never_add_up_to_more_than_the_time_that_has_passed() -> None:
    watch = Stopwatch(failed=1000, cause="x", ended=1000)
    watch.running = 2000
    # The tasks were longer at loading than the batch took as a whole: they ran at the same time.
    found = watch.recovery(1, batch(committed_ms=2500, duration_ms=500, load_ms=9000, commit_ms=50))
    assert (found.phases_ms["load"], found.phases_ms["replay"], found.recovery_ms) == (450, 0, 1500)


def test_nothing_to_tell_it_from() -> None:
    assert predict([], [], None) is None


def test_each_phase_takes_what_it_took_in_the_median() -> None:
    before = [recovery(n, start=start, replay=100) for n, start in enumerate((5000, 6000, 40_000), 1)]
    found = predict(before, [], None)
    assert found is not None
    assert (found.phases_ms["start"], found.phases_ms["replay"], found.recovery_ms) == (6000, 100, 6100)
    # Of each, told from the two others: (23000, 22500, 5500) instead of (5000, 6000, 40000).
    assert found.error_ms == 18_000
    assert (found.recoveries, found.drills) == (3, 0)


def test_one_recovery_says_nothing_of_the_error() -> None:
    found = predict([recovery(1, start=5000)], [], None)
    assert found is not None
    assert found.error_ms is None


def test_loading_grows_with_bytes_and_files() -> None:
    # 2 ms for a megabyte, 30 ms for a file of changes.
    sizes = [StateSize(100_000_000, 10), StateSize(400_000_000, 3), StateSize(50_000_000, 40)]
    before = [
        recovery(n, size, load=size.state_bytes // 500_000 + 30 * size.change_files, start=3000)
        for n, size in enumerate(sizes, 1)
    ]
    found = predict(before, [], StateSize(1_000_000_000, 20))
    assert found is not None
    assert found.phases_ms["load"] == 2000 + 600
    assert found.recovery_ms == 3000 + 2600
    # The law is exact, so two of them tell the third.
    assert found.error_ms == 0


def test_where_bytes_and_files_grow_alike_one_of_them_is_enough() -> None:
    before = [recovery(n, StateSize(n * 1_000_000, n * 2), load=n * 100) for n in (1, 2, 3)]
    found = predict(before, [], StateSize(10_000_000, 20))
    assert found is not None
    assert found.phases_ms["load"] == 1000


def test_a_law_that_makes_no_sense_is_not_believed() -> None:
    # Fewer bytes took longer: more files of changes did that, and nothing may take less than no time.
    before = [
        recovery(1, StateSize(8_000_000, 1), load=100),
        recovery(2, StateSize(1_000_000, 10), load=1000),
    ]
    # Solved exactly, each file takes 100 ms and each byte less than none: -8 ns. The files alone tell both.
    for size, load in ((StateSize(100_000_000, 0), 0), (StateSize(100_000_000, 7), 700)):
        prediction = predict(before, [], size)
        assert prediction is not None
        assert prediction.phases_ms["load"] == load


def test_a_drill_tells_of_the_phases_that_it_has() -> None:
    phases = {
        "verify": 900,
        "copy": 50,
        "job file": 300,
        "Spark": 4000,
        "plan": 700,
        "first batch": 2500,
    }
    drill = Drill(1, "sp", "query", 10_000, "job", False, phases, 1200)
    assert sample_of(drill, 2).phases_ms == {"start": 5000, "replay": 1900, "load": 600}
    found = predict([], [drill], None)
    assert found is not None
    # Loading and replaying share the first batch, so their sum does not depend on how it is divided.
    assert (found.recovery_ms, found.error_ms, found.drills) == (5000 + 2500, None, 1)
    files_only = Drill(1, "sp", "query", 10_000, None, False, {"verify": 900, "copy": 50}, None)
    assert predict([], [files_only], None) is None
