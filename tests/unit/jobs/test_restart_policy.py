from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.config.policies import (
    Exponential,
    FailureRate,
    FixedDelay,
    RestartStrategy,
    exponential,
    failure_rate,
    fixed_delay,
    no_restart,
)
from holdfast.jobs.restart_policy import GiveUp, RestartPolicy, Retry


def policy(strategy: RestartStrategy, seed: int = 1) -> RestartPolicy:
    return RestartPolicy(strategy, random.Random(seed))


def fail(machine: RestartPolicy, *times: int, same: bool = False) -> list[Retry | GiveUp]:
    """Fail at each time; differently each time, unless told otherwise."""
    return [machine.on_failure("boom" if same else f"boom {at}", False, at) for at in times]


def test_no_restart_gives_up_at_once() -> None:
    assert fail(policy(no_restart()), 0) == [GiveUp("the restart strategy is none")]


def test_what_would_come_again_is_not_tried_again_before_any_query_has_begun() -> None:
    machine = policy(fixed_delay(None, "5s"))
    assert machine.on_failure("no server", False, 0) == Retry(5_000, 1)
    given_up = GiveUp("no query had started, and a restart would fail the same way")
    assert machine.on_failure("boom", False, 10_000, comes_again=True) == given_up
    assert fail(machine, 20_000) == [given_up]


@pytest.mark.parametrize("where", ["here", "under another supervisor"])
def test_a_job_that_has_run_is_started_again_all_the_same(where: str) -> None:
    """Something around it may have changed, and may change back."""
    machine = RestartPolicy(fixed_delay(2, "5s"), random.Random(1), ran=where != "here")
    if where == "here":
        machine.on_running()
    assert machine.on_failure("boom", False, 10_000, comes_again=True) == Retry(5_000, 1)


def test_what_no_restart_fixes_ends_the_job_though_it_has_run() -> None:
    machine = policy(fixed_delay(None, "5s"))
    machine.on_running()
    given_up = GiveUp("a restart cannot fix this failure")
    assert machine.on_failure("boom", True, 10_000, permanent=True) == given_up
    assert fail(machine, 20_000) == [given_up]


def test_fixed_delay_counts_all_its_restarts() -> None:
    assert fail(policy(fixed_delay(2, "5s")), 0, 10_000, 90_000_000) == [
        Retry(5_000, 1),
        Retry(5_000, 2),
        GiveUp("restarted 2 times, the allowed maximum"),
    ]


def test_fixed_delay_without_a_limit() -> None:
    answers = fail(policy(fixed_delay(None, "0s")), *range(0, 500_000, 1_000))
    assert answers == [Retry(0, attempt) for attempt in range(1, 501)]


def test_the_pause_doubles_up_to_the_longest() -> None:
    machine = policy(exponential("1s", "5s", jitter=0))
    assert fail(machine, 0, 2_000, 5_000, 10_000, 16_000) == [
        Retry(1_000, 1),
        Retry(2_000, 2),
        Retry(4_000, 3),
        Retry(5_000, 4),
        Retry(5_000, 5),
    ]


def test_a_quiet_time_after_the_restart_starts_anew() -> None:
    # The first restart is at 1,000; it must run to 601,000 to be quiet for ten minutes.
    machine = policy(exponential("1s", "1m", jitter=0, reset_after="10m"))
    assert fail(machine, 0, 600_999) == [Retry(1_000, 1), Retry(2_000, 2)]
    machine = policy(exponential("1s", "1m", jitter=0, reset_after="10m"))
    assert fail(machine, 0, 601_000) == [Retry(1_000, 1), Retry(1_000, 1)]


def test_exponential_gives_up_after_its_attempts_without_quiet() -> None:
    machine = policy(exponential("1s", "1m", jitter=0, reset_after="10m", attempts=2))
    assert fail(machine, 0, 5_000, 10_000)[-1] == GiveUp(
        "restarted 2 times without 10m of quiet, the allowed maximum"
    )
    machine = policy(exponential("1s", "1m", jitter=0, reset_after="10m", attempts=2))
    assert fail(machine, 0, 5_000, 700_000, 705_000)[-1] == Retry(2_000, 2)


def test_the_failure_after_those_that_are_borne_ends_the_job() -> None:
    machine = policy(failure_rate(2, "1m", "1s"))
    assert fail(machine, 0, 30_000, 59_999) == [
        Retry(1_000, 1),
        Retry(1_000, 2),
        GiveUp("3 failures within 1m; the limit is 2"),
    ]


def test_a_failure_as_old_as_the_window_does_not_count() -> None:
    machine = policy(failure_rate(2, "1m", "1s"))
    assert fail(machine, 0, 30_000, 60_000, 90_000)[-1] == Retry(1_000, 4)


@pytest.mark.parametrize("strategy", [fixed_delay(None), exponential(), failure_rate(100)])
def test_the_same_failure_three_times_with_nothing_committed(strategy: RestartStrategy) -> None:
    answers = fail(policy(strategy), 0, 20_000, 60_000, same=True)
    assert isinstance(answers[1], Retry)
    assert answers[2] == GiveUp("the same failure occurred 3 times without a commit in between")


def test_a_committed_batch_or_another_failure_breaks_the_row() -> None:
    machine = policy(fixed_delay(None))
    rows = [("a", False), ("a", False), ("a", True), ("a", False), ("b", False), ("a", False), ("a", False)]
    answers = [machine.on_failure(name, committed, at * 1_000) for at, (name, committed) in enumerate(rows)]
    assert all(isinstance(answer, Retry) for answer in answers)
    assert isinstance(machine.on_failure("a", False, 99_000), GiveUp)


def test_a_long_run_that_commits_nothing_does_not_break_the_row() -> None:
    machine = policy(exponential(reset_after="1s"))
    assert isinstance(fail(machine, 0, 1_000_000, 2_000_000, same=True)[-1], GiveUp)


def test_the_same_failure_may_be_borne_for_ever() -> None:
    machine = policy(exponential(same_failure=None))
    assert all(isinstance(answer, Retry) for answer in fail(machine, *range(50), same=True))


def test_who_gave_up_stays_with_it() -> None:
    machine = policy(fixed_delay(1))
    answers = fail(machine, 0, 1, 2)
    assert answers[1] == answers[2]
    assert machine.on_failure("new", True, 10**9) == answers[1]


STRATEGIES = st.one_of(
    st.just(no_restart()),
    st.builds(
        fixed_delay,
        st.none() | st.integers(1, 5),
        st.integers(0, 10_000),
        same_failure=st.none() | st.integers(1, 4),
    ),
    st.builds(
        exponential,
        st.integers(1, 1_000),
        st.integers(1_000, 20_000),
        st.floats(1, 4),
        st.floats(0, 1),
        st.integers(1, 30_000),
        attempts=st.none() | st.integers(1, 5),
        same_failure=st.none() | st.integers(1, 4),
    ),
    st.builds(
        failure_rate,
        st.integers(1, 4),
        st.integers(1, 30_000),
        st.integers(0, 10_000),
        same_failure=st.none() | st.integers(1, 4),
    ),
)
FAILURES = st.lists(st.tuples(st.sampled_from("ab"), st.booleans(), st.integers(0, 40_000)), max_size=25)


def run(strategy: RestartStrategy, failures: list[tuple[str, bool, int]]) -> list[object]:
    machine, now, answers = policy(strategy, 7), 0, []
    for fingerprint, committed, gap in failures:
        now += gap
        answers.append(machine.on_failure(fingerprint, committed, now))
    return list(answers)


@settings(max_examples=300)
@given(STRATEGIES, FAILURES)
@pytest.mark.slow
def test_the_decisions_keep_their_promises(
    strategy: RestartStrategy, failures: list[tuple[str, bool, int]]
) -> None:
    answers = run(strategy, failures)
    times = [sum(gap for _, _, gap in failures[: at + 1]) for at in range(len(failures))]
    ended = next((at for at, answer in enumerate(answers) if isinstance(answer, GiveUp)), len(answers))
    assert all(answer == answers[ended] for answer in answers[ended:])
    retries = [answer for answer in answers[:ended] if isinstance(answer, Retry)]
    assert len(retries) == ended
    if isinstance(strategy, Exponential):
        assert all(0 <= retry.delay_ms <= strategy.max_ms for retry in retries)
        assert all(strategy.attempts is None or retry.attempt <= strategy.attempts for retry in retries)
        first = strategy.initial_ms
        slack = strategy.jitter * first + 1
        assert all(abs(r.delay_ms - first) <= slack for r in retries if r.attempt == 1)
    if isinstance(strategy, (FixedDelay, FailureRate)):
        assert all(retry.delay_ms == strategy.delay_ms for retry in retries)
        assert [retry.attempt for retry in retries] == list(range(1, ended + 1))
    if isinstance(strategy, FixedDelay) and strategy.attempts is not None:
        assert ended <= strategy.attempts
    if isinstance(strategy, FailureRate):
        for at in range(ended):
            recent = [t for t in times[: at + 1] if times[at] - t < strategy.per_ms]
            assert len(recent) <= strategy.failures


@given(st.integers(0, 2**32), st.floats(0, 1))
def test_jitter_stays_within_its_share(seed: int, jitter: float) -> None:
    machine = policy(exponential("10s", "1h", 2, jitter), seed)
    for at, base in enumerate((10_000, 20_000, 40_000, 80_000)):
        answer = machine.on_failure(str(at), False, at)
        assert isinstance(answer, Retry)
        assert abs(answer.delay_ms - base) <= base * jitter + 1


def test_jitter_spreads_and_a_seed_repeats_it() -> None:
    def delays(seed: int) -> list[object]:
        return run(exponential(same_failure=None), [("a", False, 5_000)] * 10)

    seeds = {policy(exponential("10s"), seed).on_failure("a", False, 0) for seed in range(20)}
    assert len(seeds) > 10
    assert delays(7) == delays(7)
