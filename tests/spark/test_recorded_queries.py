"""Queries under `hf.watch` and `hf.guard` in list, status, stop and REST, beside jobs, also after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from command import PROGRAM, environment
from served import Served

from holdfast.checkpoints.checkpoint import history
from holdfast.storage.local import LocalStorage

pytestmark = pytest.mark.spark

SCRIPT = Path(__file__).resolve().parents[1] / "support" / "recorded_query.py"


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 120
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return found


@contextmanager
def query(how: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / f"{how}.txt").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), how, str(folder)],
            env=environment(folder / "home"),
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)


def holdfast(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    around = {**environment(folder / "home"), "COLUMNS": "200"}
    return subprocess.run(
        [PROGRAM, *words], cwd=folder, env=around, capture_output=True, text=True, timeout=120, check=False
    )


def listed(folder: Path) -> dict[str, Any]:
    answer = holdfast(folder, "list", "--json")
    return {job["name"]: job for job in json.loads(answer.stdout or '{"jobs": []}')["jobs"]}


def status(folder: Path) -> dict[str, Any]:
    return dict(json.loads(holdfast(folder, "status", "counts", "--json").stdout or "{}"))


def batches(folder: Path) -> int:
    return len(status(folder).get("batches", []))


@pytest.mark.parametrize(("how", "kind"), [("watch", "watched"), ("guard", "guarded")])
def test_it_is_listed_measured_and_stopped_between_two_batches(tmp_path: Path, how: str, kind: str) -> None:
    with query(how, tmp_path) as process:
        until(lambda: batches(tmp_path) >= 3)
        assert process.poll() is None
        job = listed(tmp_path)["counts"]
        assert (job["kind"], job["state"], job["supervised"]) == (kind, "RUNNING", True)
        assert (job["accepts"], job["target"]) == (["savepoint", "stop"], str(SCRIPT))
        newest = status(tmp_path)["batches"][-1]
        assert newest["measured"] is True
        assert newest["operators"][0]["partitions"] > 0
        served = Served(tmp_path)
        page = served.client().get("/ui/jobs/counts", headers={"accept": "text/html"}).text
        assert 'value="stop"' in page
        assert 'value="cancel"' not in page
        refused = served.client().post("/api/v1/jobs/counts/cancel")
        assert (refused.status_code, "does not accept" in refused.json()["error"]) == (501, True)
        metrics = served.client().get("/api/v1/metrics?job=counts").json()["samples"]
        assert {each["value"] for each in metrics if each["metric"] == "holdfast_up"} == {1.0}
        restart = holdfast(tmp_path, "restart", "counts")
        assert (restart.returncode, "does not accept" in restart.stderr) == (7, True)
        stopped = holdfast(tmp_path, "stop", "counts", "--savepoint", "savepoints", "--no-digest")
        assert stopped.returncode == 0, stopped.stderr
        assert stopped.stdout.startswith("counts: FINISHED")
        assert process.wait(60) == 0
    checkpoint = LocalStorage(tmp_path / "checkpoints" / "counts")
    committed = history(checkpoint)
    # The batch that ran was committed, and none was begun after it.
    assert {int(path.name) for path in (tmp_path / "checkpoints/counts/offsets").glob("[0-9]*")} == {
        batch.batch_id for batch in committed
    }
    assert len(list((tmp_path / "savepoints" / "savepoints").iterdir())) == 1
    job = listed(tmp_path)["counts"]
    assert (job["state"], job["supervised"], job["reason"]) == ("FINISHED", False, None)
    again = holdfast(tmp_path, "stop", "counts")
    assert (again.returncode, "already ended" in again.stderr) == (4, True)


def test_a_killed_process_is_told_at_once_and_the_next_one_goes_on(tmp_path: Path) -> None:
    with query("watch", tmp_path) as process:
        until(lambda: batches(tmp_path) >= 2)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)
    job = listed(tmp_path)["counts"]
    assert (job["state"], job["supervised"], job["accepts"]) == ("RUNNING", False, ["savepoint"])
    assert "its process has ended" in holdfast(tmp_path, "list").stdout
    refused = holdfast(tmp_path, "stop", "counts")
    assert (refused.returncode, "has ended" in refused.stderr) == (4, True)
    with query("watch", tmp_path):
        until(lambda: listed(tmp_path)["counts"]["supervised"] and len(status(tmp_path)["attempts"]) == 2)
        first, second = status(tmp_path)["attempts"]
        assert (first["ending"], second["ending"]) == ("lost", None)
