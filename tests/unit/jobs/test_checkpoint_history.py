"""How long batches took and what failed before them: hand-worked, from a registry and from files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from golden import golden_on_disk
from holdfast.checkpoints import history
from holdfast.checkpoints.checkpoint import CommittedBatch
from holdfast.jobs.checkpoint_watch import measured_batches
from holdfast.jobs.registry.registry import Attempt
from holdfast.model import BatchProgress, Failure

NAME = "4.2/aggregate-changelog"


def batch(batch_id: int) -> CommittedBatch:
    return CommittedBatch(batch_id, batch_id * 1000, None, None, {}, ())


def heard(batch_id: int, committed_ms: int, duration_ms: int) -> BatchProgress:
    return BatchProgress("q", batch_id, committed_ms, 1, duration_ms, None, ())


def attempt(number: int, ended_ms: int | None, failure: Failure | None) -> Attempt:
    return Attempt(
        "job", number, 1, 0, 1, None, ended_ms, "failed" if failure else None, failure, recovers=number > 1
    )


def test_durations_and_failures_are_those_of_the_registry() -> None:
    boom = Failure("query", "ValueError", "boom", query="q", cause="user code")
    other = Failure("query", "ValueError", "elsewhere", query="other")
    found = measured_batches(
        [batch(0), batch(1), batch(2)],
        [heard(0, 1_000, 400), heard(2, 9_000, 700)],
        [attempt(1, 2_000, boom), attempt(2, 3_000, boom), attempt(3, 3_500, other), attempt(4, None, None)],
        "q",
    )
    assert [(each.duration_ms, each.duration_source, each.committed_ms) for each in found] == [
        (400, "registry", 1_000),
        (None, None, None),
        (700, "registry", 9_000),
    ]
    # Batch 1 was committed and nobody heard of it, so the failures count for the next that was heard.
    assert [len(each.failures or ()) for each in found] == [0, 0, 2]
    assert [(each.attempt, each.at_ms, each.cause, each.error) for each in found[2].failures or ()] == [
        (1, 2_000, "user code", "ValueError: boom"),
        (2, 3_000, "user code", "ValueError: boom"),
    ]


def test_a_failure_from_before_the_batches_that_are_kept_counts_for_none() -> None:
    boom = Failure("query", "ValueError", "boom")
    found = measured_batches([batch(50)], [heard(50, 9_000, 1)], [attempt(1, 2_000, boom)], "q")
    assert found[0].failures == ()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A real one whose log files have the times that they were written at: planned + 100, and 2,500 later."""
    made = golden_on_disk(NAME, tmp_path / "checkpoint")
    for file in (made / "offsets").glob("[0-9]*"):
        planned_ms = json.loads(file.read_text().splitlines()[1])["batchTimestampMs"]
        os.utime(file, ns=((planned_ms + 100) * 1_000_000,) * 2)
        commit = made / "commits" / file.name
        if commit.exists():
            os.utime(commit, ns=((planned_ms + 2_600) * 1_000_000,) * 2)
    return made


def test_the_times_of_files_are_an_estimate(checkpoint: Path) -> None:
    found = history(checkpoint)
    assert found
    for each in found:
        assert (each.duration_ms, each.duration_source) == (2_500, "files")
        assert each.committed_ms == each.planned_ms + 2_600
        assert each.failures is None
        assert each.as_dict()["duration_source"] == "files"


def test_a_copied_checkpoint_has_the_times_of_the_copying(tmp_path: Path) -> None:
    found = history(golden_on_disk(NAME, tmp_path / "copy"))
    assert {(each.duration_ms, each.duration_source, each.committed_ms) for each in found} == {(None,) * 3}
