"""The file manager of a query's checkpoint: chosen for its start, tried before it is used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from stat import S_IMODE
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.config.spark_defaults import (
    FILE_MANAGER_KEY,
    HADOOP_LOCAL_FILES,
    HOLDFAST_LOCAL_FILES,
    LOCAL_FILE_MANAGER,
    LOCAL_FILE_SYSTEM_KEY,
    LOCAL_FILES,
)
from holdfast.engine.file_manager import choose_file_manager, replaces_files
from holdfast.errors import Unsupported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

QUERY = """
import holdfast as hf
spark = hf.session("files", master="local[1]", conf={"spark.sql.shuffle.partitions": "1"}, home="home")
for number in range(3):
    spark.range(number, number + 2).write.parquet("in", mode="append")
    rows = spark.readStream.schema("id long").parquet("in")
    sink = hf.sink(rows.dropDuplicates(["id"])).parquet("out")
    sink.start(checkpoint="checkpoint", trigger=hf.available_now()).awaitTermination()
"""

Settings = Callable[[dict[str, str]], None]
SPARKS_OWN = "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"
# What PySpark's jars register for local files: its rename keeps an existing file.
HIVES = "org.apache.hadoop.hive.ql.io.ProxyLocalFileSystem"


def chosen(spark: SparkSession, checkpoint: str) -> dict[str, str | None]:
    with choose_file_manager(spark, checkpoint):
        return {key: spark.conf.get(key, None) for key in LOCAL_FILES}


def test_a_local_query_gets_the_manager_and_the_file_system_for_its_start_alone(
    unprepared: SparkSession, tmp_path: Path
) -> None:
    for address in (str(tmp_path / "one"), f"file://{tmp_path}/two", f"file:{tmp_path}/three"):
        assert chosen(unprepared, address) == LOCAL_FILES
    with choose_file_manager(unprepared, str(tmp_path)):
        assert replaces_files(unprepared)
    assert [unprepared.conf.get(key, None) for key in LOCAL_FILES] == [None] * len(LOCAL_FILES)


def test_the_manager_alone_keeps_old_files_and_is_refused(
    unprepared: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    """The JVM has opened Hive's file system long ago, and Hadoop reuses it."""
    assert replaces_files(unprepared)
    settings({FILE_MANAGER_KEY: LOCAL_FILE_MANAGER})
    assert not replaces_files(unprepared)
    with pytest.raises(Unsupported, match="does not replace existing files") as refused:
        chosen(unprepared, str(tmp_path))
    assert LOCAL_FILE_MANAGER in str(refused.value.found)
    settings({FILE_MANAGER_KEY: SPARKS_OWN})
    assert chosen(unprepared, str(tmp_path)) == {**dict.fromkeys(LOCAL_FILES), FILE_MANAGER_KEY: SPARKS_OWN}


def test_with_a_file_system_that_keeps_old_files_spark_uses_its_own_manager(
    unprepared: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    settings({LOCAL_FILE_SYSTEM_KEY: HIVES})
    assert chosen(unprepared, str(tmp_path)) == {**dict.fromkeys(LOCAL_FILES), LOCAL_FILE_SYSTEM_KEY: HIVES}
    settings({LOCAL_FILE_SYSTEM_KEY: HADOOP_LOCAL_FILES})
    assert chosen(unprepared, str(tmp_path)) == {**LOCAL_FILES, LOCAL_FILE_SYSTEM_KEY: HADOOP_LOCAL_FILES}


@pytest.mark.parametrize("mode", [0o644, 0o600, 0o1777])
def test_holdfasts_file_system_sets_the_permissions_that_chmod_sets(
    unprepared: SparkSession, tmp_path: Path, mode: int
) -> None:
    (tmp_path / "file").touch()
    jvm: Any = unprepared._jvm
    with choose_file_manager(unprepared, str(tmp_path)):
        assert unprepared.conf.get(LOCAL_FILE_SYSTEM_KEY) == HOLDFAST_LOCAL_FILES
        path = jvm.org.apache.hadoop.fs.Path(f"file:{tmp_path}/file")
        session: Any = unprepared
        files = path.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())
        files.setPermission(path, jvm.org.apache.hadoop.fs.permission.FsPermission(f"{mode:o}"))
    assert S_IMODE((tmp_path / "file").stat().st_mode) == mode


def test_a_batch_starts_no_process_for_its_files(tmp_path: Path) -> None:
    """A session of its own: what stands in for `chmod` must be there when the JVM starts."""
    found = shutil.which("chmod")
    assert found is not None
    (tmp_path / "bin").mkdir()
    stand_in = tmp_path / "bin" / "chmod"
    stand_in.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\nexec {found} "$@"\n')
    stand_in.chmod(0o755)
    (tmp_path / "query.py").write_text(QUERY)
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, "query.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    calls = [Path(call.split()[1]) for call in (tmp_path / "calls").read_text().splitlines()]
    # The others are directories, and the file source's log, written with the settings of the session.
    folders = ("checkpoint/state", "checkpoint/offsets", "checkpoint/commits", "out")
    own = {tmp_path / name for name in folders}
    assert [call for call in calls if own.intersection(call.parents)] == []
    assert sorted(file.name for file in (tmp_path / "checkpoint" / "commits").glob("[0-9]*")) == [
        "0",
        "1",
        "2",
    ]


def test_a_start_sees_no_settings_of_another_start(unprepared: SparkSession, tmp_path: Path) -> None:
    """The second would take the manager of the first for one that a person has set."""
    seen: list[dict[str, str | None]] = []
    second = Thread(target=lambda: seen.append(chosen(unprepared, str(tmp_path / "two"))))
    with choose_file_manager(unprepared, str(tmp_path / "one")):
        second.start()
        second.join(0.5)
        assert seen == []
    second.join()
    assert seen == [LOCAL_FILES]
    assert unprepared.conf.get(FILE_MANAGER_KEY, None) is None
