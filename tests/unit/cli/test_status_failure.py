"""`holdfast status` of a job whose last driver failed: a state is not an error, and an error has a time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from command import Holdfast
from example_place import HOME, make_place

from holdfast.jobs.registry.registry import Registry
from holdfast.jobs.state_home import StateHome
from holdfast.model import Failure, JobState

FAILURE = Failure("query", "ZeroDivisionError", "division by zero", "visits", cause="user code")


@pytest.fixture
def home() -> Path:
    return Path(HOME)


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    """A job that failed once, and whose queries have started again since."""
    make_place(tmp_path)
    registry = Registry(StateHome(tmp_path / HOME).registry)
    (before,) = registry.attempts("visits")
    at_ms = registry.batches("visits")[-1].committed_ms + 60_000
    registry.end_attempt("visits", before.number, "failed", FAILURE, at_ms)
    registry.set_state("visits", JobState.RESTARTING, at_ms, str(FAILURE))
    number = registry.start_attempt("visits", 2, at_ms + 1000, recovers=True)
    registry.queries_started("visits", number, registry.queries("visits"), at_ms + 2000)
    return registry


def fields(holdfast: Holdfast) -> dict[str, str]:
    said = holdfast("status", "visits")
    assert said.returncode == 0, said.stderr
    lines = [line.partition("  ") for line in said.stdout.split("\n\n")[0].splitlines()]
    return {name: value.strip() for name, _, value in lines}


def test_a_running_job_shows_its_last_failure_beside_its_state_and_with_the_time(
    holdfast: Holdfast, registry: Registry
) -> None:
    shown = fields(holdfast)
    assert shown["state"].startswith("RUNNING")
    assert "ZeroDivisionError" not in shown["state"]
    when, _, what = shown["last failure"].partition(": ")
    assert what == "query visits: ZeroDivisionError: division by zero"
    assert when.startswith("2026-03-05 ")
    found = json.loads(holdfast("status", "visits", "--json").stdout)
    assert found["reason"] is None
    assert found["last_failure"]["failure"]["error_class"] == "ZeroDivisionError"
    (listed,) = json.loads(holdfast("list", "--json").stdout)["jobs"]
    assert (listed["state"], listed["reason"]) == ("RUNNING", None)


def test_a_batch_of_the_query_makes_the_failure_history(holdfast: Holdfast, registry: Registry) -> None:
    newest = registry.batches("visits")[-1]
    later = replace(newest, batch_id=newest.batch_id + 1, committed_ms=newest.committed_ms + 120_000)
    registry.add_batch("visits", 2, replace(later, query="other"))
    assert "last failure" in fields(holdfast)  # another query's batch shows nothing of this one
    registry.add_batch("visits", 2, later)
    assert "last failure" not in fields(holdfast)
    found = json.loads(holdfast("status", "visits", "--json").stdout)
    assert found["last_failure"] is None
    assert found["attempts"][0]["failure"]["error_class"] == "ZeroDivisionError"
    assert "ZeroDivisionError" in holdfast("status", "visits").stdout


def test_a_failed_job_has_the_failure_as_its_state(holdfast: Holdfast, registry: Registry) -> None:
    registry.set_state("visits", JobState.FAILED, 2, f"{FAILURE}; gave up: 3 attempts")
    shown = fields(holdfast)
    assert shown["state"].startswith("FAILED: query visits: ZeroDivisionError")
    assert "last failure" not in shown
