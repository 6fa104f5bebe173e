"""What a builder gets for a cluster, and what its user has set and keeps. No session is started."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.engine.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = "spark.sql.shuffle.partitions"
PATH = "spark.executorEnv.PYTHONPATH"
OVERHEAD = "spark.executor.memoryOverhead"


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is set elsewhere, and what is set in the environment is put back."""
    for name in ("PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "MASTER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("JAVA_HOME", os.environ.get("JAVA_HOME", ""))
    if not os.environ["JAVA_HOME"]:
        monkeypatch.delenv("JAVA_HOME")


def options(home: Path, **given: str) -> dict[str, str]:
    """The settings of a builder that was configured; underscores stand for dots."""
    from pyspark.sql import SparkSession

    builder: SparkSession.Builder = SparkSession.builder
    for key, value in given.items():
        builder = builder.config(f"spark.{key.replace('_', '.')}", value)
    found: dict[str, str] = session.configure(builder, home=home)._options
    return found


def test_a_cluster_gets_code_partitions_and_memory(tmp_path: Path) -> None:
    found = options(tmp_path, master="yarn", executor_instances="3", executor_cores="2")
    archive = Path(found["spark.files"])
    assert archive.is_file()
    assert archive.parent == tmp_path / "shipped"
    assert found[PATH] == archive.name
    assert found["spark.python.daemon.module"] == "holdfast.worker.daemon"
    assert found[PARTITIONS] == "6"
    # The JVM's 384 MiB, Spark's 500 of RocksDB, two workers of 416.
    assert found[OVERHEAD] == f"{384 + 500 + 2 * 416}m"


@pytest.mark.slow
def test_on_yarn_no_socket_has_a_path_that_is_too_long(tmp_path: Path) -> None:
    """Spark puts them into a container's own folder, whose path is longer than the system's 108 bytes."""
    enabled = "spark.python.unix.domain.socket.enabled"
    assert enabled not in options(tmp_path, master="yarn")
    assert options(tmp_path, master="spark://head:7077")[enabled] == "true"
    assert options(tmp_path, master="k8s://head")[enabled] == "true"


def test_what_a_person_has_set_stays(tmp_path: Path) -> None:
    found = options(
        tmp_path,
        master="yarn",
        sql_shuffle_partitions="40",
        executor_memoryOverhead="3g",
        executorEnv_PYTHONPATH="/opt/lib",
        files="/data/table.csv",
    )
    assert (found[PARTITIONS], found[OVERHEAD]) == ("40", "3g")
    assert found[PATH].split(":")[1:] == ["/opt/lib"]
    assert found["spark.files"].startswith("/data/table.csv,")


def test_the_cores_of_a_standalone_cluster_are_not_guessed(tmp_path: Path) -> None:
    found = options(tmp_path, master="spark://head:7077")
    assert PARTITIONS not in found
    assert OVERHEAD not in found
    assert "spark.files" in found


def test_nothing_is_sent_to_this_machine(tmp_path: Path) -> None:
    found = options(tmp_path, master="local[2]")
    assert PATH not in found
    assert "spark.files" not in found
    assert not (tmp_path / "shipped").exists()


def test_what_spark_submit_was_told_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"spark.master": "spark://head:7077", PARTITIONS: "7", PATH: "/opt/lib"}
    monkeypatch.setattr(session, "submitted_settings", lambda _: told)
    found = options(tmp_path)
    assert found["spark.master"] == "spark://head:7077"
    assert PARTITIONS not in found
    assert found[PATH].endswith(":/opt/lib")


def test_the_python_that_is_named_for_workers_is_theirs(tmp_path: Path) -> None:
    options(tmp_path, master="spark://head:7077", pyspark_python="/opt/python3")
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python3"


@pytest.mark.slow
def test_a_second_time_adds_nothing(tmp_path: Path) -> None:
    found = options(tmp_path, master="spark://head:7077")
    again = options(tmp_path, master="spark://head:7077", executorEnv_PYTHONPATH=found[PATH])
    assert again[PATH] == found[PATH]
