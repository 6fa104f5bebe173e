from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.errors import Corrupt, NotFound, Unsupported
from holdfast.jobs.metrics_loop import recoveries
from holdfast.jobs.recovery import PHASES, RecoveryTimes, StateSize
from holdfast.jobs.registry.registry import (
    ATTEMPTS_KEPT,
    BATCHES_KEPT,
    DETAILS_KEPT,
    SAVEPOINTS_KEPT,
    AttemptCounts,
    JobRecord,
    Registry,
    Standby,
    job_id,
)
from holdfast.model import BatchProgress, Failure, JobState, OperatorProgress, QueryStarted, SavepointNote
from holdfast.ownership.election import Leader, LeadershipLost

RECORD = JobRecord(
    "job", job_id("job"), "job.py", "file:///c", "retain", JobState.CREATED, None, 10, 10, None, 42
)


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "registry.db")


def batch(number: int, query: str = "q") -> BatchProgress:
    operator = OperatorProgress("stateStoreSave", 3, 2, 1, 4, 1000, 7, 2)
    return BatchProgress(query, number, 100 + number, 5, 20, "2026-01-01T00:00:00.000Z", (operator,))


def test_a_home_that_is_new_has_no_jobs_and_is_not_made(registry: Registry) -> None:
    assert registry.jobs() == []
    assert not registry.path.exists()
    with pytest.raises(NotFound, match="unknown job 'job'"):
        registry.job("job")


def test_a_job_is_found_by_name_and_by_id(registry: Registry) -> None:
    registry.start_job(RECORD)
    assert registry.job("job") == registry.job(job_id("job")) == RECORD
    assert len(job_id("job")) == 32
    with pytest.raises(NotFound, match="job") as caught:
        registry.job("other")
    assert caught.value.expected == "job"


def test_savepoints_are_kept_with_what_went_wrong(registry: Registry) -> None:
    good = SavepointNote("q", 10, 3, "file:///c/savepoints/one", 41, 1000, 20, None)
    bad = SavepointNote("q", 20, None, None, None, None, None, "the checkpoint is damaged")
    for note in (good, bad):
        registry.add_savepoint("job", note)
    registry.add_savepoint("other", good)
    assert registry.savepoints("job") == [good, bad]
    for number in range(SAVEPOINTS_KEPT):
        registry.add_savepoint("job", replace(good, at_ms=number))
    assert [each.at_ms for each in registry.savepoints("job")] == list(range(SAVEPOINTS_KEPT))
    assert registry.savepoints("other") == [good]
    # Of a directory that was used long ago one stays: requests may name it.
    registry.add_savepoint("job", replace(good, uri="file:///d/savepoints/two"))
    for number in range(SAVEPOINTS_KEPT):
        registry.add_savepoint("job", replace(good, at_ms=number))
    kept = [note.uri for note in registry.savepoints("job")]
    assert kept == ["file:///d/savepoints/two"] + ["file:///c/savepoints/one"] * SAVEPOINTS_KEPT


def test_a_registry_of_the_first_version_goes_on(registry: Registry) -> None:
    registry.start_job(RECORD)
    with closing(sqlite3.connect(registry.path)) as db:
        db.execute("ALTER TABLE jobs DROP COLUMN savepoint_catalog")
        db.execute("ALTER TABLE jobs DROP COLUMN kind")
        db.execute("DROP VIEW attempt_kinds")
        for table in ("savepoints", "leaders", "recoveries", "dropped_attempts"):
            db.execute(f"DROP TABLE {table}")
        db.execute("DROP TABLE databases")
        db.execute("DROP TABLE standbys")
        db.execute("PRAGMA user_version = 1")
    assert registry.job("job") == RECORD
    assert registry.savepoints("job") == []
    assert registry.recoveries("job") == []


def test_a_registry_of_the_second_version_goes_on_with_all_it_knew(registry: Registry) -> None:
    registry.start_job(RECORD)
    registry.start_attempt("job", 1, 10, recovers=False)
    registry.add_batch("job", 1, batch(0))
    registry.end_attempt("job", 1, "failed", Failure("query", "Error", "boom", "q"), 15)
    with closing(sqlite3.connect(registry.path)) as db:
        db.execute("ALTER TABLE jobs DROP COLUMN savepoint_catalog")
        db.execute("ALTER TABLE jobs DROP COLUMN kind")
        db.execute("DROP VIEW attempt_kinds")
        for table in ("leaders", "recoveries", "dropped_attempts"):
            db.execute(f"DROP TABLE {table}")
        # What that version did not write of a batch and of a failure.
        for table, column, gone in (("batches", "body", "load_ms"), ("attempts", "failure", "cause")):
            db.execute(f"UPDATE {table} SET {column} = json_remove({column}, '$.{gone}')")
        db.execute("DROP TABLE databases")
        db.execute("DROP TABLE standbys")
        db.execute("PRAGMA user_version = 2")
        db.commit()
    assert registry.job("job") == replace(RECORD, updated_ms=100)
    assert registry.batches("job") == [batch(0)]
    (attempt,) = registry.attempts("job")
    assert attempt.failure == Failure("query", "Error", "boom", "q")
    assert registry.attempt_counts("job") == AttemptCounts(failed=1, causes={"unknown": 1})
    assert (registry.leader("job"), registry.recoveries("job")) == (None, [])
    recovery = RecoveryTimes(2, 15, "source: it was away", dict.fromkeys(PHASES, 10), size=StateSize(1000, 3))
    registry.add_recovery("job", recovery)
    assert registry.recoveries("job") == [recovery]
    assert recovery.recovery_ms == 70


def test_a_registry_of_the_third_version_goes_on_with_its_attempts(registry: Registry) -> None:
    registry.start_job(RECORD)
    number = registry.start_attempt("job", 1, 10, recovers=False)
    registry.end_attempt("job", number, "failed", Failure("query", "E", "x", cause="sink"), 20)
    registry.start_attempt("job", 2, 30, recovers=True)
    with closing(sqlite3.connect(registry.path)) as db:
        db.execute("ALTER TABLE jobs DROP COLUMN savepoint_catalog")
        db.execute("ALTER TABLE jobs DROP COLUMN kind")
        db.execute("DROP VIEW attempt_kinds")
        db.execute("DROP TABLE dropped_attempts")
        db.execute("DROP TABLE databases")
        db.execute("DROP TABLE standbys")
        db.execute("PRAGMA user_version = 3")
    assert [each.number for each in registry.attempts("job")] == [1, 2]
    assert registry.attempt_counts("job") == AttemptCounts(restarts=1, failed=1, causes={"sink": 1})


def test_a_registry_of_the_fourth_version_goes_on_without_a_directory_of_savepoints(
    registry: Registry,
) -> None:
    registry.start_job(RECORD)
    with closing(sqlite3.connect(registry.path)) as db:
        db.execute("ALTER TABLE jobs DROP COLUMN savepoint_catalog")
        db.execute("ALTER TABLE jobs DROP COLUMN kind")
        db.execute("DROP TABLE databases")
        db.execute("DROP TABLE standbys")
        db.execute("PRAGMA user_version = 4")
    assert registry.job("job") == RECORD
    named = replace(RECORD, savepoint_catalog="file:///sp")
    registry.start_job(named)
    assert registry.job("job") == named


def test_databases_are_those_that_the_newest_start_of_each_job_names(registry: Registry) -> None:
    assert registry.databases() == []
    registry.queries_started("job", 1, [], 5, ["redis://old:6379/0"])
    registry.queries_started("other", 1, [], 6, ["redis://new:6379/0"])
    registry.queries_started("job", 2, [], 7, ["redis://new:6379/0", "cassandra://new:9042/shop"])
    assert sorted(registry.databases()) == ["cassandra://new:9042/shop", "redis://new:6379/0"]
    with closing(sqlite3.connect(registry.path)) as db:
        db.execute("DROP TABLE databases")
        db.execute("DROP TABLE standbys")
        db.execute("ALTER TABLE jobs DROP COLUMN kind")
        db.execute("PRAGMA user_version = 5")
    assert registry.databases() == []


def test_a_standby_is_known_until_it_takes_over_or_ends(registry: Registry) -> None:
    registry.start_job(RECORD)
    registry.set_standby("job", Standby(7, 100, 5_000))
    registry.end_standby("job", 8)
    assert registry.standby("job") == Standby(7, 100, 5_000)
    registry.end_standby("job", 7)
    assert registry.standby("job") is None
    # The supervisor that knew of it was killed, and the next one starts the job again.
    registry.set_standby("job", Standby(7, 100, 5_000))
    registry.start_job(RECORD)
    assert registry.standby("job") is None


def test_only_the_newest_leader_writes_of_a_job(registry: Registry) -> None:
    def leader(token: int, beat_ms: int) -> Leader:
        return Leader(token, f"host pid {token}", "file:///leases", 1000, beat_ms, beat_ms)

    first, second = Registry(registry.path, 7), Registry(registry.path, 8)
    with pytest.raises(LeadershipLost):  # nobody has told the registry of this term
        first.start_job(RECORD)
    first.lead("job", leader(7, 100))
    first.start_job(RECORD)
    first.beat("job", 150)
    assert registry.leader("job") == replace(leader(7, 100), beat_ms=150)
    second.lead("job", leader(8, 200))
    number = second.start_attempt("job", 1, 200, recovers=True)
    forbidden: list[Callable[[], object]] = [
        lambda: first.lead("job", leader(7, 300)),
        lambda: first.beat("job", 300),
        lambda: first.start_job(RECORD),
        lambda: first.set_state("job", JobState.FAILED, 300),
        lambda: first.start_attempt("job", 2, 300, recovers=False),
        lambda: first.end_attempt("job", number, "failed", None, 300),
        lambda: first.queries_started("job", number, [], 300),
        lambda: first.add_batch("job", number, batch(0)),
        lambda: first.add_savepoint("job", SavepointNote("q", 1, 1, None, None, None, None, None)),
        lambda: first.add_recovery("job", RecoveryTimes(2, 15, "x", dict.fromkeys(PHASES, 10))),
    ]
    before = registry.path.read_bytes()
    for write in forbidden:
        with pytest.raises(LeadershipLost) as caught:
            write()
        assert (caught.value.found, caught.value.expected) == ("term 7", "term 8")
    registry.request("job", "stop", 300)
    with pytest.raises(LeadershipLost):
        first.take_requests("job", 301)
    assert second.take_requests("job", 302) == ["stop"]
    assert registry.batches("job") == []
    assert len(before) == len(registry.path.read_bytes())
    assert registry.leaders() == {"job": leader(8, 200)}


def test_a_leader_that_takes_over_answers_what_was_asked_before(registry: Registry) -> None:
    first, second = Registry(registry.path, 1), Registry(registry.path, 2)
    leader = Leader(1, "a", "file:///leases", 1000, 0, 0)
    first.lead("job", leader)
    first.start_job(RECORD)
    registry.request("job", "stop", 10)
    second.lead("job", replace(leader, token=2))
    second.start_job(RECORD)
    assert second.take_requests("job", 20) == ["stop"]
    # What was asked of a job that has ended is void.
    second.set_state("job", JobState.FINISHED, 30)
    registry.request("job", "stop", 40)
    second.start_job(RECORD)
    assert second.take_requests("job", 50) == []


def test_a_leader_lives_for_two_leases() -> None:
    leader = Leader(1, "a", "file:///leases", 1000, 0, 5000)
    assert leader.lives(6999)
    assert not leader.lives(7000)


def test_a_terminal_state_ends_a_job(registry: Registry) -> None:
    registry.start_job(RECORD)
    registry.set_state("job", JobState.RESTARTING, 20, "why")
    assert (registry.job("job").ended_ms, registry.job("job").reason) == (None, "why")
    registry.set_state("job", JobState.FINISHED, 30)
    assert registry.job("job").ended_ms == 30


def test_attempts_are_counted_over_a_jobs_life(registry: Registry) -> None:
    failure = Failure("query", "Error", "boom", "q", "long text")
    assert registry.start_attempt("job", 1, 10, recovers=False) == 1
    registry.end_attempt("job", 1, "failed", failure, 15)
    assert registry.start_attempt("job", 2, 20, recovers=True) == 2
    registry.add_batch("job", 2, batch(0))
    registry.add_batch("job", 2, batch(1))
    assert registry.start_attempt("job", 3, 30, recovers=False) == 3
    first, second, third = registry.attempts("job")
    assert (first.ending, first.failure, first.recovers) == ("failed", failure, False)
    assert (second.ending, second.first_commit_ms, second.recovers) == ("lost", 100, True)
    assert third.ending is None


def test_the_newest_attempts_stay_and_the_others_are_counted(registry: Registry) -> None:
    total, causes = ATTEMPTS_KEPT + 30, ("sink", "source", "sink")
    for each in range(1, total + 1):
        number = registry.start_attempt("job", 1, each * 10, recovers=each not in (1, 4))
        assert number == each
        if each % 2 == 0:
            registry.queries_started("job", each, [], each * 10 + 1)
        if each == 6:
            registry.add_batch("job", each, batch(0))
        failure = Failure("query", "E", "x", detail="long text", cause=causes[each % 3])
        registry.end_attempt("job", each, "failed", failure, each * 10 + 2)
    kept = registry.attempts("job")
    # 4 was started by hand and 6 has committed: a recovery that lasts began there.
    assert [each.number for each in kept] == [4, 6, *range(31, total + 1)]
    long = [each.number for each in kept if each.failure is not None and each.failure.detail]
    assert long == list(range(total - DETAILS_KEPT + 1, total + 1))
    assert registry.attempt_counts("job") == AttemptCounts(
        restarts=228,
        failed=230,
        failed_running=115,
        restored=115,
        causes={"sink": 153, "source": 77},
    )
    # From the failure of 4, at 42, to that commit, at 100; the next one lasts since 6 failed.
    assert recoveries(kept) == (58, 62)
    assert registry.attempt_counts("other") == AttemptCounts()


def test_batches_come_back_as_they_went_in(registry: Registry) -> None:
    registry.start_attempt("job", 1, 10, recovers=False)
    for number in range(3):
        registry.add_batch("job", 1, batch(number))
    registry.add_batch("job", 1, batch(1))
    assert registry.batches("job") == [batch(0), batch(1), batch(2)]
    assert registry.batches("job", limit=1) == [batch(2)]
    assert registry.batches("other") == []


def test_only_the_newest_batches_stay(registry: Registry) -> None:
    registry.add_batch("job", 1, batch(0))
    registry.add_batch("job", 1, batch(1))
    registry.add_batch("job", 1, batch(BATCHES_KEPT))
    assert [each.batch_id for each in registry.batches("job")] == [1, BATCHES_KEPT]


def test_batches_of_a_run_that_was_gone_back_on_are_forgotten(registry: Registry) -> None:
    for number in (4, 5, 6):
        registry.add_batch("job", 1, batch(number))
        registry.add_batch("job", 1, batch(number, "other"))
    registry.add_batch("job", 2, batch(5))  # it goes on from an older savepoint, behind batch 4
    assert [each.batch_id for each in registry.batches("job") if each.query == "q"] == [4, 5]
    assert [each.batch_id for each in registry.batches("job") if each.query == "other"] == [4, 5, 6]
    assert sorted((each.query, each.batch_id) for each in registry.newest_batches("job")) == [
        ("other", 6),
        ("q", 5),
    ]


def test_batches_of_a_former_checkpoint_are_forgotten_when_the_query_starts(registry: Registry) -> None:
    registry.queries_started("job", 1, [QueryStarted("q", "id-1", "run-1", "c", "x")], 5)
    registry.add_batch("job", 1, batch(7))
    registry.queries_started("job", 2, [QueryStarted("q", "id-1", "run-2", "c", "x")], 6)
    assert registry.batches("job") == [batch(7)]
    registry.add_batch("job", 3, batch(0))  # it may commit before it is known to have started
    registry.add_batch("other", 1, batch(8))
    registry.queries_started("job", 3, [QueryStarted("q", "id-2", "run-3", "c", "x")], 7)
    assert registry.batches("job") == [batch(0)]
    assert registry.batches("other") == [batch(8)]


def test_queries_are_those_of_the_newest_attempt(registry: Registry) -> None:
    started = QueryStarted("q", "id", "run-1", "c", "exactly once: …")
    registry.queries_started("job", 1, [started], 5)
    registry.queries_started("job", 2, [QueryStarted("q", "id", "run-2", "c", "x")], 6)
    assert [query.run_id for query in registry.queries("job")] == ["run-2"]


def test_queries_that_a_job_has_no_longer_are_forgotten(registry: Registry) -> None:
    one, other = (
        QueryStarted("one", "id-1", "run-1", "c/one", "x"),
        QueryStarted("two", "id-2", "r", "c", "x"),
    )
    registry.queries_started("job", 1, [one], 5)
    registry.queries_started("other", 1, [one], 5)
    registry.queries_started("job", 2, [other], 6)
    assert registry.queries("job") == [other]
    assert registry.queries("other") == [one]


def test_a_request_is_handed_out_once(registry: Registry) -> None:
    registry.request("job", "stop", 1)
    registry.request("other", "cancel", 1)
    assert registry.take_requests("job", 2) == ["stop"]
    assert registry.take_requests("job", 3) == []


def test_a_damaged_registry_says_what_to_do(registry: Registry) -> None:
    registry.path.write_bytes(b"not a database at all, but long enough to be looked at" * 20)
    with pytest.raises(Corrupt, match="move it away"):
        registry.jobs()


def test_a_registry_of_another_version_is_left_alone(registry: Registry) -> None:
    with closing(sqlite3.connect(registry.path)) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(Unsupported, match="format 99"):
        registry.jobs()
