"""Jobs on YARN, in client and in cluster mode: kills lose nothing. Expected rows are of a model in Python."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import running_job
from command import Holdfast
from process_table import in_group
from running_job import JOBS, BatchLogs, running, until
from small_day import BATCHES, TOTALS, SmallDay, found_in_ledger
from standalone_cluster import python_without_us, small_executors
from yarn_cluster import DRIVER, EXECUTOR, YarnCluster, yarn_conf

from holdfast.engine.session.java import find_java, java_home_for_spark

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.fault]

SEED = 20261126
# A submission, its container, two executors and their Python start for each attempt.
PATIENCE_S = 300.0


@pytest.fixture(autouse=True)
def on_yarn(yarn_cluster: YarnCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lead Spark to the cluster, and wait longer than for jobs of one machine."""
    monkeypatch.setattr(running_job, "PATIENCE_S", PATIENCE_S)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn_cluster.conf_dir))


@pytest.fixture
def day(tmp_path: Path) -> SmallDay:
    """The orders, and where they are."""
    made = SmallDay.make(SEED)
    made.write(tmp_path / "day")
    (tmp_path / "out").mkdir()
    return made


def conf(python: Path) -> dict[str, str]:
    return {
        **yarn_conf(),
        "spark.executor.instances": "2",
        **small_executors(python),
    }


def test_in_client_mode_an_executor_and_the_driver_die_and_nothing_is_lost_or_repeated(
    yarn_cluster: YarnCluster, day: SmallDay, tmp_path: Path
) -> None:
    """Python of the executors has nothing of ours. YARN ends a container that outgrows what is asked for."""
    python, logs = python_without_us(tmp_path / "bare"), BatchLogs(tmp_path / "checkpoint")
    settings = {"day": str(tmp_path / "day"), "out": str(tmp_path / "out")}
    with running(
        JOBS / "clustered.py:clustered", tmp_path, settings=settings, conf=conf(python), master="yarn"
    ) as job:
        cluster = job.await_event("cluster")
        job.await_event("batch", 2)
        until(lambda: logs.uncommitted, "a batch runs", PATIENCE_S)
        executors = yarn_cluster.containers(EXECUTOR)
        os.kill(executors[0], signal.SIGKILL)
        job.await_event("batch", 4)
        until(lambda: logs.uncommitted, "a batch runs", PATIENCE_S)
        driver = job.driver()
        os.killpg(driver, signal.SIGKILL)
        job.driver(2)
        ended = job.ended()
    assert ended.code == 0, ended.words
    assert not in_group(driver)
    assert len(executors) == 2
    assert (cluster["slots"], cluster["partitions"]) == (2, 2)
    assert found_in_ledger(tmp_path / "out" / "totals.db", TOTALS) == day.totals()
    assert len(logs.commits) == BATCHES


def test_in_cluster_mode_the_guarded_driver_dies_and_yarn_s_next_attempt_goes_on(
    yarn_cluster: YarnCluster, day: SmallDay, tmp_path: Path
) -> None:
    logs = BatchLogs(tmp_path / "checkpoint")
    settings = {**conf(Path(sys.executable)), "spark.yarn.maxAppAttempts": "2"}
    driver = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    driver |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "127.0.0.1"}
    settings |= {f"spark.yarn.appMasterEnv.{name}": value for name, value in driver.items()}
    # In cluster mode the container's own host is the driver's.
    del settings["spark.driver.host"], settings["spark.driver.bindAddress"]
    command = [
        str(Path(sys.executable).parent / "spark-submit"),
        "--master",
        "yarn",
        "--deploy-mode",
        "cluster",
    ]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    command += ["--py-files", str(JOBS / "tallies.py"), str(JOBS / "submitted.py"), str(tmp_path)]
    java = str(java_home_for_spark(find_java(os.environ), tmp_path))
    with (tmp_path / "said").open("wb") as said:
        submitted = subprocess.Popen(
            command,
            stdout=said,
            stderr=said,
            cwd=tmp_path,
            env={**os.environ, "JAVA_HOME": java, "PYSPARK_PYTHON": sys.executable},
        )
    try:
        until(lambda: logs.uncommitted, "a batch runs", PATIENCE_S)
        (first,) = yarn_cluster.containers(DRIVER)
        os.kill(first, signal.SIGKILL)
        assert submitted.wait(PATIENCE_S) == 0, (tmp_path / "said").read_text()[-3000:]
    finally:
        submitted.kill()
        submitted.wait()
    assert json.loads((tmp_path / "session.json").read_text())["master"] == "yarn"
    assert found_in_ledger(tmp_path / "totals.db", TOTALS) == day.totals()


def test_the_doctor_sees_what_yarn_gives(holdfast: Holdfast, tmp_path: Path) -> None:
    words = ["--master", "yarn", "--json"]
    for key, value in conf(python_without_us(tmp_path / "bare")).items():
        words += ["--conf", f"{key}={value}"]
    found = holdfast("doctor", *words, timeout=PATIENCE_S)
    assert found.returncode == 0, found.stderr
    cluster = json.loads(found.stdout)["cluster"]
    assert (cluster["fit"]["manager"], cluster["fit"]["slots"]) == ("yarn", 2)
    assert [executor["shipped"] for executor in cluster["executors"]] == [True, True]
