"""A checkpoint on a disk that fills up: the job says so, and goes on when there is room again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from process_table import working_in
from running_job import JOBS, BatchLogs, running, until
from small_day import SmallDay, found_in_files
from small_disk import fill, small_disk

pytestmark = [pytest.mark.fault, pytest.mark.spark]

WINDOWS = f"{JOBS}/windows.py:impatient"
COLUMNS = ("begin", "account", "orders", "amount")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of eight megabytes."""
    with small_disk(tmp_path / "disk", "size=8m") as place:
        yield place


def test_a_full_disk_fails_the_job_and_room_lets_it_go_on(disk: Path, tmp_path: Path) -> None:
    day = SmallDay.make(11)
    day.write(tmp_path / "day")
    settings = {"checkpoint.storage": str(disk / "checkpoint"), "trigger": "50ms"}
    logs = BatchLogs(disk / "checkpoint")
    with running(WINDOWS, tmp_path, settings=settings) as job:
        until(lambda: len(logs.commits) >= 2, "two batches")
        rest = fill(disk)
        full = job.ended()
    # Started again on the full disk it fails in the same way, from the first thing it writes.
    assert full.code == 1
    assert "Traceback" not in full.words
    assert "No space left on device" in full.text
    assert "gave up" in full.text
    committed = logs.commits
    assert len(committed) >= 2
    rest.unlink()
    with running(WINDOWS, tmp_path, settings={**settings, "trigger": "available now"}) as job:
        ended = job.ended()
    assert (ended.code, ended.words) == (0, "")
    assert logs.commits > committed
    assert found_in_files(tmp_path / "out" / "windows", *COLUMNS) == day.windows()
    assert working_in(tmp_path) == []


def test_a_disk_that_is_full_from_the_start_is_named_as_the_cause(disk: Path, tmp_path: Path) -> None:
    SmallDay.make(11).write(tmp_path / "day")
    fill(disk)
    settings = {"checkpoint.storage": str(disk / "checkpoint")}
    with running(WINDOWS, tmp_path, settings=settings) as job:
        full = job.ended()
    assert (full.code, full.kinds.count("starting")) == (1, 2)
    assert "Traceback" not in full.words
    assert "cannot write the lock of the checkpoint: No space left on device" in full.text
    assert not (disk / "checkpoint").exists()
    assert working_in(tmp_path) == []
