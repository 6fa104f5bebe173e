"""Jobs on a cluster of two workers whose Python has nothing of ours: the code gets there, kills lose nothing.

Paths are absolute, since executors work in directories of their own. Expected rows are of a model in Python.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import pytest
from broadcast_programs import events_and_rules, read_in
from broadcast_programs import expected as expected_alerts
from command import Holdfast
from keyed_runs import START, batches_read, clocks, write_batch
from process_table import in_group
from running_job import JOBS, PATIENCE_S, BatchLogs, RunningJob, running, until
from small_day import BATCHES, TOTALS, SmallDay, found_in_files, found_in_ledger
from split_programs import batches
from split_programs import expected as expected_baskets
from standalone_cluster import StandaloneCluster, python_without_us, small_executors

from holdfast.engine.session.java import find_java, java_home_for_spark

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.fault]

SEED = 20261126


@contextmanager
def clustered(
    cluster: StandaloneCluster,
    python: Path,
    place: Path,
    job: str = "clustered.py:clustered",
    **settings: str,
) -> Iterator[RunningJob]:
    """A job of the tests on the cluster."""
    where = {"out": str(place / "out"), **settings}
    with running(
        JOBS / job, place, settings=where, conf=small_executors(python), master=cluster.address
    ) as found:
        yield found


def uncommitted_batch(job: RunningJob, logs: BatchLogs, batches: int) -> None:
    """Wait for so many batches, and for one that is under way."""
    job.await_event("batch", batches)
    until(lambda: logs.uncommitted, "a batch runs", PATIENCE_S)


def partitions_of(place: Path) -> set[str]:
    return {
        folder.name for folder in (place / "checkpoint" / "state" / "0").iterdir() if folder.name.isdigit()
    }


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The Python of the executors."""
    return python_without_us(tmp_path / "bare")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the job works."""
    (tmp_path / "place" / "out").mkdir(parents=True)
    return tmp_path / "place"


def test_a_keyed_job_is_exact_where_workers_have_none_of_its_code_and_an_executor_dies(
    standalone_cluster: StandaloneCluster, python: Path, place: Path
) -> None:
    day = SmallDay.make(SEED)
    day.write(place / "day")
    logs = BatchLogs(place / "checkpoint")
    with clustered(standalone_cluster, python, place, day=str(place / "day")) as job:
        cluster = job.await_event("cluster")
        uncommitted_batch(job, logs, 2)
        killed = standalone_cluster.executors()
        os.kill(killed[0], signal.SIGKILL)
        ended = job.ended()
    assert ended.code == 0, ended.words
    assert len(killed) == 2
    assert (cluster["slots"], cluster["partitions"], cluster["partitions_from"]) == (2, 2, "the cluster")
    assert [worker["cores"] for worker in cluster["workers"]] == [1, 1]
    assert partitions_of(place) == {"0", "1"}
    assert found_in_ledger(place / "out" / "totals.db", TOTALS) == day.totals()
    assert len(logs.commits) == BATCHES


def test_a_worker_a_driver_and_the_supervisor_die_and_nothing_is_lost_or_repeated(
    standalone_cluster: StandaloneCluster, python: Path, place: Path
) -> None:
    day = SmallDay.make(SEED + 1)
    day.write(place / "day")
    logs = BatchLogs(place / "checkpoint")
    with clustered(standalone_cluster, python, place, day=str(place / "day")) as job:
        uncommitted_batch(job, logs, 1)
        os.killpg(standalone_cluster.workers[0], signal.SIGKILL)
        uncommitted_batch(job, logs, 3)
        os.killpg(job.driver(), signal.SIGKILL)
        job.driver(2)
        # The first line of the second session: one worker is left, and the state keeps its partitions.
        left = job.await_event("cluster", 2)
        uncommitted_batch(job, logs, 5)
        driver = job.driver(2)
        job.kill()
        until(lambda: not in_group(driver), "the driver ends with its batch", PATIENCE_S)
        assert logs.offsets == logs.commits
        before = len(logs.commits)
    assert left["slots"] == 1
    with clustered(standalone_cluster, python, place, day=str(place / "day")) as job:
        ended = job.ended()
    assert ended.code == 0, ended.words
    assert before < BATCHES == len(logs.commits)
    assert partitions_of(place) == {"0", "1"}
    assert found_in_ledger(place / "out" / "totals.db", TOTALS) == day.totals()


def test_a_savepoint_of_a_cluster_is_rescaled_and_goes_on_there(
    standalone_cluster: StandaloneCluster, python: Path, place: Path, holdfast: Holdfast
) -> None:
    day = SmallDay.make(SEED + 2)
    day.write(place / "whole")
    files = sorted((place / "whole" / "orders").iterdir())
    (place / "day" / "orders").mkdir(parents=True)
    for file in files[:3]:
        file.rename(place / "day" / "orders" / file.name)
    with clustered(standalone_cluster, python, place, day=str(place / "day")) as job:
        assert job.ended().code == 0
    taken = holdfast("savepoint", "take", str(place / "checkpoint"), str(place / "sp"), "--json")
    assert taken.returncode == 0, taken.stderr
    saved = json.loads(taken.stdout)["savepoint"]
    (place / "checkpoint").rename(place / "before")
    wider = holdfast("rescale", saved, str(place / "checkpoint"), "--partitions", "5", "--json")
    assert wider.returncode == 0, wider.stderr
    for file in files[3:]:
        file.rename(place / "day" / "orders" / file.name)
    with clustered(standalone_cluster, python, place, day=str(place / "day")) as job:
        ended = job.ended()
    assert ended.code == 0, ended.words
    assert partitions_of(place) == {"0", "1", "2", "3", "4"}
    assert found_in_ledger(place / "out" / "totals.db", TOTALS) == day.totals()


def test_windows_are_those_of_the_model(
    standalone_cluster: StandaloneCluster, python: Path, place: Path
) -> None:
    day = SmallDay.make(SEED + 3)
    day.write(place / "day")
    with clustered(standalone_cluster, python, place, "windows.py:windows", day=str(place / "day")) as job:
        ended = job.ended()
    assert ended.code == 0, ended.words
    columns = ("begin", "account", "orders", "amount")
    assert found_in_files(place / "out" / "windows", *columns) == day.windows()


def test_rules_reach_every_executor(standalone_cluster: StandaloneCluster, python: Path, place: Path) -> None:
    files = events_and_rules(SEED, batches=6, size=30, start=START)
    for number, (events, rules) in enumerate(files):
        write_batch(place / "in" / "rules", number, rules)
        write_batch(place / "in" / "events", number, events)
    logs = BatchLogs(place / "checkpoint")
    with clustered(standalone_cluster, python, place, "alerts.py:alerts", into=str(place / "in")) as job:
        job.await_event("batch")
        read = (len(files), len(files))
        until(lambda: not logs.uncommitted and read_in(logs.path)[-1] == read, "all is read", PATIENCE_S)
        os.kill(job.pid, signal.SIGTERM)
        ended = job.ended()
    assert ended.code == 0, ended.words
    wanted = sum(expected_alerts(place / "checkpoint", files).values(), Counter())
    assert wanted
    assert found_in_files(place / "out" / "alerts", "who", "rule", "least", "seen") == wanted


def test_a_hot_key_that_is_split_over_executors_counts_once(
    standalone_cluster: StandaloneCluster, python: Path, place: Path
) -> None:
    given = [batch for batch in batches(SEED, count=6, size=120, start=START) if batch]
    for number, batch in enumerate(given):
        write_batch(place / "in", number, batch)
    logs = BatchLogs(place / "checkpoint")
    with clustered(standalone_cluster, python, place, "baskets.py:baskets", into=str(place / "in")) as job:
        job.await_event("batch")
        until(
            lambda: not logs.uncommitted and clocks(logs.path)[-1][2] == len(given), "all is read", PATIENCE_S
        )
        os.kill(job.pid, signal.SIGTERM)
        ended = job.ended()
    assert ended.code == 0, ended.words
    read = [events for _, _, events in batches_read(place / "checkpoint", given)]
    wanted = Counter(row for rows in expected_baskets(read) for row in rows)
    columns = ("who", "n", "total", "least", "average", "items", "kinds")
    assert found_in_files(place / "out" / "baskets", *columns) == wanted


def test_the_doctor_sees_what_executors_have(
    standalone_cluster: StandaloneCluster, python: Path, holdfast: Holdfast
) -> None:
    words = ["--master", standalone_cluster.address, "--json"]
    for key, value in small_executors(python).items():
        words += ["--conf", f"{key}={value}"]
    found = holdfast("doctor", *words, timeout=PATIENCE_S)
    assert found.returncode == 0, found.stderr
    cluster = json.loads(found.stdout)["cluster"]
    assert (cluster["fit"]["slots"], cluster["fit"]["partitions"]) == (2, 2)
    assert [executor["shipped"] for executor in cluster["executors"]] == [True, True]
    for executor in cluster["executors"]:
        assert executor["executable"] == str(python)
        assert executor["python"] == platform.python_version()
        assert executor["packages"]["holdfast"] is None
        assert executor["packages"]["pyarrow"] == metadata.version("pyarrow")
    checks = {check["name"]: check for check in cluster["checks"]}
    assert checks["holdfast on executors"]["found"].endswith("sent by the driver")
    nowhere = holdfast(
        "doctor", *words, "--conf", "spark.pyspark.python=/nowhere/bin/python", timeout=PATIENCE_S
    )
    assert nowhere.returncode == 1
    (wrong,) = [check for check in json.loads(nowhere.stdout)["cluster"]["checks"] if not check["ok"]][:1]
    assert "/nowhere/bin/python" in wrong["found"]


def test_a_program_of_spark_submit_keeps_its_master_and_its_partitions(
    standalone_cluster: StandaloneCluster, python: Path, place: Path
) -> None:
    day = SmallDay.make(SEED + 4)
    day.write(place / "day")
    command = [str(Path(sys.executable).parent / "spark-submit"), "--master", standalone_cluster.address]
    settings = {**small_executors(python), "spark.pyspark.driver.python": sys.executable}
    for key, value in {**settings, "spark.sql.shuffle.partitions": "3"}.items():
        command += ["--conf", f"{key}={value}"]
    done = subprocess.run(
        [*command, str(JOBS / "submitted.py"), str(place)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        env={
            **os.environ,
            "JAVA_HOME": str(java_home_for_spark(find_java(os.environ), place)),
            "PYSPARK_PYTHON": str(python),
        },
    )
    assert done.returncode == 0, [line for line in done.stderr.splitlines() if "Error" in line]
    session = json.loads((place / "session.json").read_text())
    assert session["master"] == standalone_cluster.address
    assert partitions_of(place) == {"0", "1", "2"}
    assert found_in_ledger(place / "totals.db", TOTALS) == day.totals()
