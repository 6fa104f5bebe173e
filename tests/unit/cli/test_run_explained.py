"""`holdfast run --dry-run`: what would become of each setting, and nothing is started."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from command import Holdfast

from golden import golden_on_disk
from holdfast import savepoints
from holdfast.jobs.registry.registry import Registry
from holdfast.jobs.state_home import StateHome, SupervisorLock
from holdfast.ownership.checkpoint_lock import lock_path, reserved
from holdfast.ownership.election import Leader

JOB = """\
import holdfast as hf


@hf.job(name="shop", checkpoint="checkpoint", alerts=hf.Alerts(skew="off", state_size="1 GB"))
def shop(spark):
    raise AssertionError("it was started")
"""


def test_each_setting_is_explained_and_nothing_starts(holdfast: Holdfast, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(JOB)
    ha = ("--ha", str(tmp_path / "elections"), "--lease", "20s")
    said = holdfast("run", "shop.py", "--dry-run", "--json", "--set", "alerts.late_rows=0.2", *ha)
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert found["leading"] == {"address": (tmp_path / "elections").as_uri(), "lease_ms": 20_000}
    assert found["goes_on"] == "no, it starts from scratch"
    knobs = {each["name"]: (each["value"], each["becomes"]) for each in found["knobs"]}
    assert knobs["alerts.skew"] == ("not set", "no alert")
    assert knobs["alerts.state_size"] == ("1 GiB", "an alert")
    assert knobs["alerts.late_rows"] == ("0.2", "an alert")
    assert knobs["alerts.webhook"] == ("not set", "not sent")
    assert not (tmp_path / "elections").exists()
    assert not (tmp_path / "checkpoint").exists()
    shown = holdfast("run", "shop.py", "--dry-run", *ha).stdout
    assert "the leading supervisor is elected at" in shown
    assert "with a lease of 20s" in shown


def test_how_it_would_be_served_is_refused_and_warned_of_as_by_a_run(
    holdfast: Holdfast, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(JOB)
    everywhere = ("run", "shop.py", "--dry-run", "--host", "0.0.0.0")
    said = holdfast(*everywhere)
    assert (said.returncode, said.stdout) == (2, "")
    assert "needs a token" in said.stderr
    short = tmp_path / "short"
    short.write_text("short")
    assert holdfast("run", "shop.py", "--dry-run", "--token-file", str(short)).returncode == 2
    assert holdfast(*everywhere, "--no-rest").returncode == 0
    token = tmp_path / "token"
    token.write_text("a-token-that-is-long-enough")
    for form in ((), ("--json",)):
        said = holdfast(*everywhere, "--token-file", str(token), *form)
        assert said.returncode == 0, said.stderr
        assert "WARNING: 0.0.0.0 is served without TLS" in said.stderr
        assert "long-enough" not in said.stdout + said.stderr
    assert "WARNING" not in holdfast("run", "shop.py", "--dry-run", "--token-file", str(token)).stderr


def test_nobody_is_shown_the_secret_of_a_webhook(holdfast: Holdfast, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(JOB)
    given = ("--set", "alerts.webhook=https://hooks.example:8443/services/s3cret?sig=s3cret")
    for form in ((), ("--json",)):
        said = holdfast("run", "shop.py", "--dry-run", *form, *given)
        assert said.returncode == 0, said.stderr
        assert "https://hooks.example:8443/…" in said.stdout
        assert "s3cret" not in said.stdout + said.stderr


def test_a_job_file_is_not_handed_the_token(
    holdfast: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_TOKEN", "a-token-that-is-long-enough")
    (tmp_path / "shop.py").write_text(f"import os\nassert 'HOLDFAST_TOKEN' not in os.environ\n{JOB}")
    said = holdfast("run", "shop.py", "--dry-run")
    assert said.returncode == 0, said.stderr


def refused(answer: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    assert (answer.returncode, answer.stdout) == (code, ""), answer.stderr
    for word in words:
        assert word in answer.stderr


@pytest.mark.slow
def test_a_start_from_a_savepoint_refuses_what_the_run_would(holdfast: Holdfast, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(JOB)
    saved = savepoints.take(golden_on_disk("4.2/aggregate-memory", tmp_path / "old"), tmp_path / "sp").uri
    words = ("run", "shop.py", "-s", saved, "--dry-run")
    shown = holdfast(*words)
    assert shown.returncode == 0, shown.stderr
    assert f"would start from {saved}" in shown.stdout
    assert not (tmp_path / "checkpoint").exists()
    # The state is of format 1, and another one is asked for.
    other = ("--conf", "spark.sql.streaming.stateStore.checkpointFormatVersion=2")
    refused(holdfast(*words, *other), 2, "the state-checkpoint format set for the job differs", "=1")
    # Another job of Holdfast's has the place.
    lock = lock_path(f"file://{tmp_path}/checkpoint", Path())
    with reserved(lock, "state erase"):
        refused(holdfast(*words), 4, "in use by another command", "holdfast state erase")
    # The job runs already.
    running = SupervisorLock(StateHome(tmp_path / "home"), "shop")
    assert running.take()
    refused(holdfast(*words), 4, "the job is already running")
    running.release()
    # One of several supervisors leads it.
    registry = Registry(StateHome(tmp_path / "home").registry)
    now_ms = int(time.time() * 1000)
    registry.lead("shop", Leader(1, "machine-2 pid 7", "file:///leases", 3_600_000, now_ms, now_ms))
    refused(holdfast(*words), 4, "the job is already running", "machine-2 pid 7", "--ha file:///leases")
    registry.lead("shop", Leader(1, "machine-2 pid 7", "file:///leases", 1, now_ms, 0))
    # There is a checkpoint, whole or not: also one that an earlier restore has made and that has gone on.
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "note.txt").write_text("mine")
    refused(
        holdfast(*words), 4, "the checkpoint of query 'shop' cannot be restored from a savepoint", "omit -s"
    )
    shutil.rmtree(tmp_path / "checkpoint")
    named = holdfast("run", "shop.py", "-s", f"sums={saved}", "--dry-run")
    assert named.returncode == 0, named.stderr
    golden_on_disk("4.2/aggregate-memory", tmp_path / "checkpoint" / "sums")
    refused(holdfast("run", "shop.py", "-s", f"sums={saved}", "--dry-run"), 4, "of query 'sums'")
    # The savepoint is damaged.
    shutil.rmtree(tmp_path / "checkpoint")
    damaged = next(each for each in (tmp_path / "sp" / "objects").rglob("*") if each.is_file())
    damaged.unlink()
    damaged.write_bytes(b"other")
    refused(holdfast(*words), 6, "damaged")
