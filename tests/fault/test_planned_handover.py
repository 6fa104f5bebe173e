"""A restart by request: the new driver is ready before the running one stops, or the running one goes on."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from keyed_runs import clocks
from process_table import in_group, working_in
from running_job import JOBS, BatchLogs, running, until
from test_keyed_kill import Feed, check
from test_supervisor import Case

import holdfast as hf
from holdfast.jobs.events import JobEvent
from holdfast.jobs.registry.operation_log import Operation, Operations, OperationState, Restart
from holdfast.model import JobState

pytestmark = pytest.mark.fault

ID, OTHER = "ab" * 16, "cd" * 16


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def request_restart(case: Case, operation_id: str = ID) -> None:
    Operations(case.home).ask(operation_id, "restart", "job", Restart(), 0)
    case.registry.request("job", "restart", 0)


def asked(case: Case, operation_id: str = ID) -> Operation:
    return Operations(case.home).get(operation_id)


def pids(case: Case, kind: str) -> list[int]:
    return [int(event.facts["pid"]) for event in case.events if event.kind == kind]


def after_the_first_batch(
    case: Case, more: Callable[[JobEvent], None] = lambda _: None
) -> Callable[[JobEvent], None]:
    """Request a restart once the first driver has committed a batch."""

    def on_event(event: JobEvent) -> None:
        if event.kind == "batch" and len(pids(case, "starting")) == 1:
            request_restart(case)
        more(event)

    return on_event


def stop_when_told(case: Case, kind: str) -> Callable[[JobEvent], None]:
    def on_event(event: JobEvent) -> None:
        if event.kind == kind:
            case.registry.request("job", "stop", 0)

    return on_event


def change(case: Case, **changes: Any) -> None:
    """Change the job file as a person would while the job runs."""
    text = json.loads(case.script.read_text())
    text["definition"].update(changes.pop("definition", {}))
    case.script.write_text(json.dumps({**text, **changes}))
    later = case.script.stat().st_mtime_ns + 1_000_000_000
    os.utime(case.script, ns=(later, later))


def test_a_warm_driver_takes_over_and_the_result_says_how_long_it_took(case: Case) -> None:
    outcome = case.run(case.write(["batch", "wait"], ["batch", "finish"]), after_the_first_batch(case))
    assert (outcome.state, outcome.attempts, outcome.batches) == (JobState.FINISHED, 2, 2)
    assert pids(case, "starting")[1] == pids(case, "standby-ready")[0]
    kinds = case.kinds()
    # The former driver goes on until the new one is ready.
    assert kinds.index("standby-ready") < len(kinds) - kinds[::-1].index("starting")
    assert [each.ending for each in case.registry.attempts("job")] == ["stopped", "finished"]
    assert case.registry.recoveries("job") == []
    operation = asked(case)
    assert operation.state is OperationState.COMPLETED
    assert set(operation.result or {}) == {"job", "took_ms", "warm_ms"}


def test_a_job_without_a_standby_has_none_after_a_restart(case: Case) -> None:
    steps = ["batch", "wait"], ["batch", "batch", "wait"]
    case.run(case.write(*steps), after_the_first_batch(case, stop_when_told(case, "restarted")))
    assert len(pids(case, "standby-ready")) == 1


def test_a_standby_from_before_the_request_is_replaced(case: Case) -> None:
    """It may have loaded a module that has changed since."""

    def on_event(event: JobEvent) -> None:
        if event.kind == "standby-ready" and len(pids(case, "standby-ready")) == 1:
            request_restart(case)

    outcome = case.run(case.write(["batch", "wait"], ["batch", "finish"], standby=True), on_event)
    assert outcome.attempts == 2
    first, second = pids(case, "standby-ready")
    assert pids(case, "starting")[1] == second
    assert not in_group(first)


def test_a_second_request_gets_a_driver_that_starts_after_it(case: Case) -> None:
    def ask_again(event: JobEvent) -> None:
        if event.kind == "standby-ready" and len(pids(case, "standby-ready")) == 1:
            request_restart(case, OTHER)

    outcome = case.run(
        case.write(["batch", "wait"], ["batch", "finish"]), after_the_first_batch(case, ask_again)
    )
    assert outcome.attempts == 2
    assert pids(case, "starting")[1] == pids(case, "standby-ready")[-1]
    assert not in_group(pids(case, "standby-ready")[0])
    assert {asked(case).state, asked(case, OTHER).state} == {OperationState.COMPLETED}


def test_a_request_while_the_new_driver_takes_over_is_answered_by_the_next(case: Case) -> None:
    def ask_again(event: JobEvent) -> None:
        if event.kind == "starting" and len(pids(case, "starting")) == 2:
            request_restart(case, OTHER)

    steps = ["batch", "wait"], ["batch", "wait"], ["batch", "finish"]
    outcome = case.run(case.write(*steps), after_the_first_batch(case, ask_again))
    assert (outcome.state, outcome.attempts) == (JobState.FINISHED, 3)
    assert {asked(case).state, asked(case, OTHER).state} == {OperationState.COMPLETED}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"unfit": "no Java found"}, "no Java found"),
        ({"unbuildable": "TypeError: no column"}, "the job's function failed in the new driver"),
        ({"definition": {"checkpoint": "file:///another"}}, "name or checkpoint was changed"),
    ],
)
def test_a_driver_that_cannot_take_over_leaves_the_running_one_as_it_is(
    case: Case, changes: dict[str, Any], why: str
) -> None:
    def on_event(event: JobEvent) -> None:
        if event.kind == "batch":
            change(case, **changes)
            request_restart(case)
        if event.kind == "caution" and event.text.startswith("job: not restarted"):
            change(case, definition={"checkpoint": checkpoint})
            case.registry.request("job", "stop", 0)

    spec = case.write(["batch", "wait"])
    checkpoint = json.loads(case.script.read_text())["definition"]["checkpoint"]
    outcome = case.run(spec, on_event)
    assert (outcome.state, outcome.attempts) == (JobState.FINISHED, 1)
    operation = asked(case)
    assert operation.state is OperationState.FAILED
    assert why in (operation.error or {})["error"]


def test_a_running_driver_that_is_killed_meanwhile_is_followed_by_the_new_one(case: Case) -> None:
    def kill(event: JobEvent) -> None:
        if event.kind == "standby-ready" and len(pids(case, "starting")) == 1:
            os.kill(pids(case, "starting")[0], signal.SIGKILL)

    outcome = case.run(case.write(["batch", "wait"], ["batch", "finish"]), after_the_first_batch(case, kill))
    assert outcome.state is JobState.FINISHED
    assert pids(case, "starting")[1] == pids(case, "standby-ready")[0]
    assert asked(case).state is OperationState.COMPLETED


def test_a_new_driver_that_fails_at_once_is_followed_by_the_next(case: Case) -> None:
    steps = ["batch", "wait"], ["die"], ["batch", "finish"]
    outcome = case.run(case.write(*steps), after_the_first_batch(case))
    assert (outcome.state, outcome.attempts) == (JobState.FINISHED, 3)
    assert asked(case).state is OperationState.COMPLETED


def test_a_job_that_is_stopped_meanwhile_says_that_it_was_not_restarted(case: Case) -> None:
    stop = stop_when_told(case, "restarting-warm")
    outcome = case.run(case.write(["batch", "wait"]), after_the_first_batch(case, stop))
    assert (outcome.state, outcome.attempts) == (JobState.FINISHED, 1)
    assert "ended before a new driver took over" in (asked(case).error or {})["error"]


def test_a_request_to_a_former_supervisor_is_answered(case: Case) -> None:
    Operations(case.home).ask(ID, "restart", "job", Restart(), 0)
    case.run(case.write(["batch", "finish"]))
    assert "before it began the restart" in (asked(case).error or {})["error"]


@pytest.mark.spark
def test_a_keyed_job_restarted_in_mid_stream_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    feed = Feed(tmp_path / "in")
    feed.more()
    logs = BatchLogs(tmp_path / "checkpoint")
    (tmp_path / "out").mkdir()
    with running(JOBS / "keyed.py:keyed", tmp_path) as job, ThreadPoolExecutor(1) as requests:
        job.driver(1)
        until(lambda: bool(logs.commits), "a batch is committed")
        for attempt in range(2, 4):
            restarted = requests.submit(hf.jobs.restart, "keyed", home=tmp_path / "home")
            while not restarted.done():
                feed.more()
                given = len(feed.given)
                until(lambda: bool(logs.commits) and clocks(logs.path)[-1][2] >= given, "it is read")  # noqa: B023 - called at once
            assert restarted.result().took_ms > 0
            assert job.driver(attempt) != job.driver(attempt - 1)
        feed.end()
        until(lambda: not logs.uncommitted and clocks(logs.path)[-1][2] == len(feed.given), "all is read")
        os.kill(job.pid, signal.SIGTERM)
        ended = job.ended()
    assert ended.code == 0, ended.words
    assert ended.kinds.count("starting") == 3
    assert "recovered" not in ended.kinds
    check(tmp_path, feed.given)
    assert working_in(tmp_path) == []
