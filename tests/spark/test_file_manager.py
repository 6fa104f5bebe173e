"""The file manager of a query's checkpoint: chosen for its start, tried before it is used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from holdfast.config.spark_defaults import (
    FILE_MANAGER_KEY,
    LOCAL_FILE_MANAGER,
    LOCAL_FILE_SYSTEM_KEY,
    LOCAL_FILES,
)
from holdfast.engine.file_manager import choose_file_manager, replaces_files
from holdfast.errors import Unsupported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

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
    settings({LOCAL_FILE_SYSTEM_KEY: LOCAL_FILES[LOCAL_FILE_SYSTEM_KEY]})
    assert chosen(unprepared, str(tmp_path)) == LOCAL_FILES


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
