"""A driver killed after its sink has a batch and before Spark has noted it.

Such a batch is skipped by the sink when it runs again, so nobody reads it and its state is not computed;
with state-checkpoint format 2 plain Spark then fails at every start. What a kill leaves at that moment is a
batch in the sink's log without an entry in the commit log, and that is what is made here.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from grid import WHOLE
from running_job import JOBS, BatchLogs, running
from small_day import SmallDay, found_in_files

pytestmark = [pytest.mark.fault, pytest.mark.spark]

SEED = 11
COLUMNS = ("begin", "account", "orders", "amount")


@pytest.mark.parametrize("job", ["windows", "plain"] if WHOLE else ["windows"])
def test_the_batch_is_finished_and_the_job_goes_on(job: str, tmp_path: Path) -> None:
    day = SmallDay.make(SEED)
    day.write(tmp_path / "whole")
    files = sorted((tmp_path / "whole" / "orders").iterdir())
    deliver(files[: len(files) // 2], tmp_path / "day" / "orders")
    assert run(job, tmp_path) == []
    logs = BatchLogs(tmp_path / "checkpoint")
    newest = logs.newest
    for name in (str(newest), f".{newest}.crc"):
        (logs.path / "commits" / name).unlink()
    assert (tmp_path / "out" / "windows" / "_spark_metadata" / str(newest)).exists()

    deliver(files[len(files) // 2 :], tmp_path / "day" / "orders")
    assert run(job, tmp_path) == ["mended"]
    assert logs.offsets == logs.commits
    found: Counter[tuple[object, ...]] = found_in_files(tmp_path / "out" / "windows", *COLUMNS)
    assert found == day.windows()


def deliver(files: list[Path], folder: Path) -> None:
    """Copy files with their times, by which Spark orders them."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copy2(file, folder / file.name)


def run(job: str, folder: Path) -> list[str]:
    """Run a job to its end; which of its events tell of trouble."""
    with running(JOBS / f"{job}.py:{job}", folder) as process:
        ended = process.ended()
    assert (ended.code, ended.words) == (0, "")
    return [kind for kind in ended.kinds if kind in ("mended", "restarting")]
