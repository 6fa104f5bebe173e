"""The wheel on a cluster of two workers: its jar gets there, and a killed executor loses nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from installed_wheel import build_wheel, install, readers_environment
from redis_server import CLIENT, RedisServer
from running_job import JOBS, BatchLogs, until
from small_day import BATCHES, TOTALS, SmallDay, found_in_ledger
from small_session import small_session
from standalone_cluster import StandaloneCluster

import holdfast as hf

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.fault]

SEED = 20261125


def test_a_job_from_the_wheel_keeps_its_state_in_redis_while_an_executor_is_killed(
    redis_server: RedisServer, standalone_cluster: StandaloneCluster, tmp_path: Path
) -> None:
    programs = install(build_wheel(tmp_path / "dist"), tmp_path / "installed")
    day = SmallDay.make(SEED)
    place = tmp_path / "place"
    day.write(place / "day")
    (place / "out").mkdir()
    conf = {
        **small_session(jvm=""),
        **hf.Redis(redis_server.address).spark_conf(),
        "spark.jars": ",".join(map(str, sorted(CLIENT.glob("*.jar")))),
        "spark.executor.memory": "512m",
        "spark.pyspark.python": sys.executable,
    }
    command = [str(programs / "holdfast"), "run", str(JOBS / "running_totals.py:running_totals")]
    command += ["--master", standalone_cluster.address, "--home", str(tmp_path / "home"), "--no-rest"]
    for key, value in conf.items():
        command += ["--conf", f"{key}={value}"]
    logs = BatchLogs(place / "checkpoint")
    with (tmp_path / "told").open("wb") as told:
        job = subprocess.Popen(
            command, cwd=place, env=readers_environment(programs, 0), stdout=told, stderr=told
        )
    try:
        until(lambda: len(logs.commits) >= 2 or job.poll() is not None, "two batches are committed")
        until(lambda: logs.uncommitted or job.poll() is not None, "a batch runs")
        killed = standalone_cluster.executors()
        assert len(killed) == 2, (tmp_path / "told").read_text()
        os.kill(killed[0], signal.SIGKILL)
        code = job.wait(120)
    finally:
        job.kill()
        job.wait()
    assert code == 0, (tmp_path / "told").read_text()
    assert found_in_ledger(place / "out" / "totals.db", TOTALS) == day.totals()
    for partition in ("0", "1"):
        external = place / "checkpoint" / "state" / "0" / partition / "external.json"
        store = json.loads(external.read_text())["store"]
        assert int(redis_server.ask("HGET", store, "version")) == len(logs.commits) == BATCHES
