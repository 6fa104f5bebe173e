"""What is told of a job from outside its supervisor."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.jobs.registry.client import Control
from holdfast.jobs.registry.registry import JobRecord, Registry
from holdfast.jobs.state_home import StateHome, SupervisorLock
from holdfast.model import JobState


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

    monkeypatch.setattr(SupervisorLock, "taken", ends)
    [status] = Control(home, lambda: 2).jobs()
    assert (status.job.state, status.supervised) == (JobState.FINISHED, False)
