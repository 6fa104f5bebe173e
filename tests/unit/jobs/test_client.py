"""What is told of a job from outside its supervisor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.jobs.registry.client import Control, JobDetails
from holdfast.jobs.registry.registry import JobRecord, Registry
from holdfast.jobs.state_home import StateHome, SupervisorLock
from holdfast.model import JobState, SavepointNote


def test_a_job_that_ends_while_it_is_looked_at_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = StateHome(tmp_path)
    registry = Registry(home.registry)
    registry.start_job(JobRecord.begun("shop", "shop.py", str(tmp_path / "ck"), "keep", 1, None))
    registry.set_state("shop", JobState.RUNNING, 1, None)

    def ends(lock: SupervisorLock) -> bool:
        registry.set_state("shop", JobState.FINISHED, 2, None)
        return False

    monkeypatch.setattr(SupervisorLock, "is_held", ends)
    [status] = Control(home, lambda: 2).jobs()
    assert (status.job.state, status.supervised) == (JobState.FINISHED, False)


def test_savepoints_go_where_the_job_says_else_where_the_last_one_went_else_beside_the_checkpoint(
    tmp_path: Path,
) -> None:
    home = StateHome(tmp_path)
    registry = Registry(home.registry)
    record = JobRecord.begun("shop", "shop.py", "file:///data/ck", "retain", 1, None)

    def details() -> JobDetails:
        return Control(home, lambda: 2).details("shop")

    registry.start_job(record)
    assert details().savepoint_directory == "file:///data/ck.savepoints"
    note = SavepointNote("q", 10, 3, "file:///last/savepoints/one", 41, 1000, 20, None)
    registry.add_savepoint("shop", note)
    assert details().savepoint_directory == "file:///last"
    registry.start_job(replace(record, savepoint_catalog="file:///configured"))
    assert details().savepoint_directory == "file:///configured"
    assert details().known_catalogs("file:///data/ck") == [
        "file:///configured",
        "file:///last",
        "file:///data/ck.savepoints",
    ]
