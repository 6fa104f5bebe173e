"""Batches that run longer than the timeout of checkpoints, in a row and one that hangs."""

from __future__ import annotations

from typing import Any, cast

import pytest

from holdfast.config.policies import no_restart
from holdfast.jobs.processes.driver_process import DriverProcess
from holdfast.jobs.processes.protocol import JobDefined
from holdfast.jobs.supervisor.supervised_job import DriverAttempt

TIMEOUT_MS = 10_000


class Case:
    """A driver with one query, on a clock that is set by hand."""

    def __init__(self, tolerable: int) -> None:
        self.now = 0.0
        self.told = 0
        self.attempt = DriverAttempt(cast("DriverProcess", None), now=lambda: self.now)
        self.definition = JobDefined(
            "job",
            "file:///c",
            on_cancel="retain",
            timeout_ms=TIMEOUT_MS,
            tolerable_failures=tolerable,
            restart=no_restart(),
        )

    def runs(self, seconds: float) -> bool:
        """A batch runs on for so long; whether the driver is to be ended for it."""
        self.now += seconds
        return self.attempt.too_slow(self.definition, self._say)

    def commits(self) -> None:
        self.attempt.has_committed("q")

    def is_busy(self, busy: bool) -> None:
        self.attempt.busy("q", busy=busy)

    def _say(self, *_: Any) -> None:
        self.told += 1


def test_late_batches_in_a_row_are_counted() -> None:
    case = Case(tolerable=2)
    case.is_busy(True)
    for _ in range(2):
        assert not case.runs(15)
        case.commits()
    assert case.runs(15)
    failure = case.attempt.failure
    assert failure is not None
    assert failure.line == "a batch did not commit within 1 x 10000 ms, after 2 late batches"
    assert case.told == 3


def test_a_batch_in_time_ends_the_row() -> None:
    case = Case(tolerable=1)
    case.is_busy(True)
    for _ in range(3):
        assert not case.runs(15)
        case.commits()
        assert not case.runs(5)
        case.commits()
    assert case.told == 3


@pytest.mark.parametrize("tolerable", [0, 3])
def test_a_batch_that_hangs_counts_with_each_further_timeout(tolerable: int) -> None:
    case = Case(tolerable)
    case.is_busy(True)
    for _ in range(tolerable):
        assert not case.runs(10)
        assert not case.runs(0)  # the same timeout is told once
    assert case.runs(10)
    assert case.told == tolerable + 1


def test_a_late_batch_counts_whether_the_query_rests_before_or_after_its_commit_is_heard() -> None:
    case = Case(tolerable=1)
    case.is_busy(True)
    assert not case.runs(15)
    case.is_busy(False)
    assert not case.runs(100)  # it waits for rows
    case.commits()
    case.is_busy(True)
    assert case.runs(15)


def test_a_batch_that_ran_long_before_it_was_committed_counts_once() -> None:
    case = Case(tolerable=4)
    case.is_busy(True)
    assert not case.runs(35)  # three timeouts, seen at one look
    case.commits()
    for _ in range(3):
        assert not case.runs(11)
        case.commits()
    assert case.runs(11)
