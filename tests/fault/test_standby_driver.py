"""A standby driver: it takes over when the driver of a job ends, and touches nothing of the job before."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from grid import WHOLE
from process_table import in_group
from test_keyed_kill import killed_and_checked
from test_supervisor import Case

from holdfast.config.policies import fixed_delay
from holdfast.jobs.events import JobEvent
from holdfast.model import JobState

pytestmark = pytest.mark.fault

A_DAY = fixed_delay(attempts=3, delay="1 day")


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def pids(case: Case, kind: str) -> list[int]:
    return [int(event.facts["pid"]) for event in case.events if event.kind == kind]


def killing_the_driver(case: Case, at: str = "standby-ready") -> Callable[[JobEvent], None]:
    """Kill the driver that runs when something is told for the first time."""

    def on_event(event: JobEvent) -> None:
        if event.kind == at and len(pids(case, "starting")) == 1:
            os.kill(pids(case, "starting")[-1], signal.SIGKILL)

    return on_event


def test_it_takes_over_without_the_delay_of_the_restart_strategy(case: Case) -> None:
    spec = case.write(["batch", "wait"], ["batch", "finish"], standby=True, restart=A_DAY)
    outcome = case.run(spec, killing_the_driver(case))
    assert (outcome.state, outcome.attempts, outcome.batches) == (JobState.FINISHED, 2, 2)
    assert pids(case, "starting")[1] == pids(case, "standby-ready")[0]
    (ready,) = [event.facts for event in case.events if event.kind == "standby-ready"]
    assert (ready["memory_bytes"], ready["took_ms"], ready["batches"]) == (1 << 20, 1500, 3)


def test_status_shows_it_until_it_takes_over(case: Case) -> None:
    spec = case.write(["batch", "wait"], ["batch", "finish"], standby=True, restart=A_DAY)
    kill = killing_the_driver(case)
    shown: list[int | None] = []

    def on_event(event: JobEvent) -> None:
        if event.kind in ("standby-ready", "starting"):
            standby = case.registry.standby("job")
            shown.append(None if standby is None else standby.pid)
        kill(event)

    assert case.run(spec, on_event).state is JobState.FINISHED
    (ready,) = pids(case, "standby-ready")
    assert shown == [None, ready, None]


def test_the_option_keeps_one_for_a_job_that_does_not_ask_for_it(case: Case) -> None:
    spec = replace(case.write(["batch", "wait"], ["batch", "finish"], restart=A_DAY), standby=True)
    assert case.run(spec, killing_the_driver(case)).state is JobState.FINISHED
    assert len(pids(case, "standby-ready")) == 1


def test_a_driver_that_has_not_committed_is_restarted_by_the_strategy(case: Case) -> None:
    attempts = ["batch", "wait"], ["die"], ["batch", "finish"]
    spec = case.write(*attempts, standby=True, restart=fixed_delay(attempts=3, delay="2ms"))
    assert case.run(spec, killing_the_driver(case)).attempts == 3
    told = [event.text for event in case.events if event.kind == "restarting"]
    assert "its standby driver takes over" in told[0]
    assert "restarting in 2 ms" in told[1]


def test_one_that_ends_is_told_and_the_job_goes_on(case: Case) -> None:
    def on_event(event: JobEvent) -> None:
        if event.kind == "standby-ready":
            os.kill(int(event.facts["pid"]), signal.SIGKILL)
        if event.kind == "caution":
            case.registry.request("job", "stop", 0)

    outcome = case.run(case.write(["batch", "wait"], standby=True), on_event)
    assert (outcome.state, outcome.attempts) == (JobState.FINISHED, 1)
    (caution,) = [event.text for event in case.events if event.kind == "caution"]
    assert (
        "no standby driver: the process of the standby driver ended; the next one starts in 10.0 s" in caution
    )


def test_one_that_refuses_the_job_says_why(case: Case) -> None:
    spec = case.write(["batch", "wait"], standby=True)
    case.script.write_text(json.dumps({**json.loads(case.script.read_text()), "unfit": "no Java found"}))

    def on_event(event: JobEvent) -> None:
        if event.kind == "caution":
            case.registry.request("job", "stop", 0)

    assert case.run(spec, on_event).state is JobState.FINISHED
    (caution,) = [event.text for event in case.events if event.kind == "caution"]
    assert "no standby driver: no Java found" in caution


def test_a_changed_job_file_gets_a_standby_of_its_own(case: Case) -> None:
    spec = case.write(["batch", "wait"], ["batch", "finish"], standby=True, restart=A_DAY)

    def on_event(event: JobEvent) -> None:
        ready = pids(case, "standby-ready")
        if event.kind == "standby-ready" and len(ready) == 1:
            later = case.script.stat().st_mtime_ns + 1_000_000_000
            os.utime(case.script, ns=(later, later))
        elif event.kind == "standby-ready" and len(ready) == 2:
            assert not in_group(ready[0])
            os.kill(pids(case, "starting")[-1], signal.SIGKILL)

    assert case.run(spec, on_event).state is JobState.FINISHED
    assert pids(case, "starting")[1] == pids(case, "standby-ready")[1]


def test_it_ends_with_the_job(case: Case) -> None:
    def on_event(event: JobEvent) -> None:
        if event.kind == "standby-ready":
            case.registry.request("job", "stop", 0)

    assert case.run(case.write(["batch", "wait"], standby=True), on_event).state is JobState.FINISHED
    assert not in_group(pids(case, "standby-ready")[0])


def test_its_log_becomes_that_of_the_attempt(case: Case) -> None:
    spec = case.write(["batch", "wait"], ["batch", "finish"], standby=True)
    case.run(spec, killing_the_driver(case))
    folder = case.home.job("job")
    assert (folder / "driver-2.log").exists()
    assert not list(folder.glob("driver-standby-*.log"))


@pytest.mark.spark
def test_a_keyed_job_killed_under_a_standby_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    kinds = killed_and_checked(tmp_path, 4 if WHOLE else 1, {}, standby=True)
    assert kinds.count("recovered") >= 1
