"""What people do next with a job that runs, is stopped, or has ended: its supervisor is a process."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from scripted_job import Scripted
from terminal import on_terminal

from holdfast.savepoints.address import StateAddress

pytestmark = pytest.mark.fault


def test_a_job_that_was_stopped_goes_on_where_it_stopped(tmp_path: Path) -> None:
    job = Scripted(tmp_path)
    with job.supervised():
        stopped = on_terminal(["stop", "shop"], tmp_path, job.home.path)
    assert stopped.code == 0, stopped.lines
    assert stopped.lines[-1] == f"next: holdfast run {job.script}"


def test_a_savepoint_of_a_job_that_was_stopped_starts_it_elsewhere(tmp_path: Path) -> None:
    job = Scripted(tmp_path)
    with job.supervised():
        stopped = on_terminal(["stop", "shop", "--savepoint", "my savepoints"], tmp_path, job.home.path)
    assert stopped.code == 0, stopped.lines
    words = shlex.split(stopped.lines[-1])
    (taken,) = (tmp_path / "my savepoints" / "savepoints").iterdir()
    assert words[:4] == ["next:", "holdfast", "run", str(job.script)]
    assert words[4:6] == ["-s", f"my savepoints/savepoints/{taken.name}"]
    assert StateAddress.parse(words[5]).is_savepoint
    restored = job.checkpoint.with_name(f"{job.checkpoint.name}-restored").relative_to(tmp_path)
    assert words[6:] == ["--set", f"checkpoint.storage={restored}"]


def test_a_job_that_was_cancelled_keeps_its_checkpoint_for_the_next_run(tmp_path: Path) -> None:
    job = Scripted(tmp_path)
    with job.supervised():
        cancelled = on_terminal(["cancel", "shop"], tmp_path, job.home.path)
    assert cancelled.code == 0, cancelled.lines
    assert cancelled.lines[-1] == f"next: holdfast run {job.script}"
