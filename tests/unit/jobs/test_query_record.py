"""The record of a query that its own process watches."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from served import batch

from holdfast.errors import Conflict, Unsupported
from holdfast.jobs.query_record import QueryRecord
from holdfast.jobs.registry.client import Control
from holdfast.jobs.registry.registry import JobRecord, Registry
from holdfast.jobs.state_home import QueryLock, StateHome
from holdfast.model import Failure, JobKind, JobState, QueryStarted

QUERY = QueryStarted("counts", "a9dec4b3-ead2-45b9-984a-9c5769ffdee9", "run", "file:///ck/counts", "unknown")


class Recorded:
    """A record, what it said, and how often it asked the query to stop."""

    def __init__(self, home: Path) -> None:
        self.home = StateHome(home)
        self.said: list[str] = []
        self.stops = 0
        self.record = QueryRecord(home, "counts", JobKind.WATCHED, QUERY, self._stop, self.said.append)
        self.registry = Registry(self.home.registry)
        self.control = Control(self.home, lambda: 2)

    def _stop(self) -> None:
        self.stops += 1

    def until(self, holds: Callable[[], Any]) -> None:
        deadline = time.monotonic() + 30
        while not holds():
            assert time.monotonic() < deadline, self.said
            time.sleep(0.01)


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path)


def test_a_query_is_recorded_with_its_batches_and_its_end(recorded: Recorded) -> None:
    recorded.record.start()
    recorded.record.committed(batch(0, "counts"))
    recorded.until(lambda: recorded.registry.jobs() and recorded.registry.batches("counts"))
    (status,) = recorded.control.jobs()
    assert (status.job.kind, status.job.state, status.supervised) == (
        JobKind.WATCHED,
        JobState.RUNNING,
        True,
    )
    assert recorded.control.details("counts").queries == [QUERY]
    recorded.record.committed(batch(1, "counts"))
    recorded.record.terminated(None)
    recorded.record.close(active=False)
    details = recorded.control.details("counts")
    assert (details.status.job.state, details.status.supervised) == (JobState.FINISHED, False)
    assert [each.batch_id for each in details.batches] == [0, 1]
    assert [attempt.ending for attempt in details.attempts] == ["finished"]
    assert recorded.said == []


def test_a_failure_is_recorded_and_the_next_run_in_the_session_is_a_recovery(recorded: Recorded) -> None:
    recorded.record.start()
    recorded.record.terminated(Failure("query", "ZeroDivisionError", "division by zero"))
    recorded.until(
        lambda: recorded.registry.jobs() and recorded.registry.job("counts").state is JobState.FAILED
    )
    assert recorded.registry.job("counts").reason == "ZeroDivisionError: division by zero"
    recorded.record.restarted("again", recovers=True)
    recorded.until(lambda: recorded.registry.job("counts").state is JobState.RUNNING)
    recorded.record.close(active=True)
    first, second = recorded.registry.attempts("counts")
    assert (first.ending, second.ending, second.recovers) == ("failed", "finished", True)
    assert recorded.registry.job("counts").reason == "no longer watched; the query may continue"


def test_the_query_is_asked_to_stop_once(recorded: Recorded) -> None:
    recorded.record.start()
    recorded.until(
        lambda: recorded.registry.jobs() and recorded.registry.job("counts").state is JobState.RUNNING
    )
    for _ in range(2):
        recorded.registry.request("counts", "stop", 5)
        recorded.until(lambda: recorded.stops)
    recorded.record.terminated(None)
    recorded.record.close(active=False)
    assert recorded.stops == 1
    assert [attempt.ending for attempt in recorded.registry.attempts("counts")] == ["stopped"]


def test_of_a_killed_process_the_record_tells_that_it_has_ended(recorded: Recorded) -> None:
    recorded.record.start()
    recorded.until(
        lambda: recorded.registry.jobs() and recorded.registry.job("counts").state is JobState.RUNNING
    )
    # The kernel releases the lock with the process.
    recorded.record._lock.release()
    (status,) = recorded.control.jobs()
    assert (status.lost, status.word) == (True, "RUNNING (its process has ended)")
    assert status.accepts == ("savepoint",)
    with pytest.raises(Conflict, match="has ended"):
        recorded.control.running("counts", "stop")
    recorded.record.close(active=True)


def test_what_its_process_does_not_accept_is_refused(recorded: Recorded) -> None:
    recorded.record.start()
    recorded.until(
        lambda: recorded.registry.jobs() and recorded.registry.job("counts").state is JobState.RUNNING
    )
    assert recorded.control.running("counts", "stop").job.name == "counts"
    for verb in ("cancel", "restart", "rescale"):
        with pytest.raises(Unsupported, match="does not accept"):
            recorded.control.running("counts", verb)
    recorded.record.close(active=False)


def test_a_job_of_the_same_name_is_left_as_it_is(recorded: Recorded) -> None:
    job = JobRecord.begun("counts", "counts.py", "file:///ck/job", "retain", 1, None)
    recorded.registry.start_job(job)
    recorded.record.start()
    recorded.record.committed(batch(0, "counts"))
    recorded.until(lambda: recorded.said)
    recorded.record.close(active=False)
    assert recorded.registry.job("counts") == job
    assert recorded.registry.batches("counts") == []
    assert "a job of this name" in recorded.said[0]


def test_a_second_process_leaves_the_record_to_the_first(recorded: Recorded) -> None:
    recorded.record.start()
    second = Recorded(recorded.home.path)
    second.record.start()
    assert "a different process" in second.said[0]
    second.record.close(active=True)
    assert QueryLock(recorded.home, "counts").is_held()
    recorded.record.close(active=False)


def test_a_state_home_that_cannot_be_written_is_told_and_nothing_raises(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    recorded = Recorded(tmp_path / "home")
    recorded.record.start()
    recorded.record.committed(batch(0, "counts"))
    recorded.record.terminated(None)
    recorded.record.close(active=False)
    assert recorded.said
