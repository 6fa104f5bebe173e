"""Spark's own suites of its file managers, run with the settings with which Holdfast uses each of them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import pyspark
import pytest
from required import require

from holdfast.config.spark_defaults import (
    HADOOP_LOCAL_FILES,
    HOLDFAST_LOCAL_FILES,
    LOCAL_FILE_SYSTEM_KEY,
    LOCAL_FILES,
)
from holdfast.engine.session.jars import state_jar
from holdfast.engine.session.java import find_java

pytestmark = pytest.mark.services

SUITES: Final = Path(__file__).parents[2] / ".services" / "suites"
STREAMING: Final = "org.apache.spark.sql.execution.streaming"
# Tests by suite: the manager that Spark uses by itself, the one for local files, both with the checksums that
# Spark writes under state-checkpoint format 2, and the one for S3.
TESTS: Final = {
    f"{STREAMING}.FileContextBasedCheckpointFileManagerSuite": 1,
    f"{STREAMING}.FileSystemBasedCheckpointFileManagerSuite": 1,
    f"{STREAMING}.FileContextChecksumCheckpointFileManagerSuite": 8,
    f"{STREAMING}.FileSystemChecksumCheckpointFileManagerSuite": 8,
    "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManagerSuite": 1,
}
# As spark-submit opens them.
OPENED: Final = """
java.lang java.lang.invoke java.lang.reflect java.io java.net java.nio java.util java.util.concurrent
java.util.concurrent.atomic jdk.internal.ref sun.nio.ch sun.nio.cs sun.security.action sun.util.calendar
"""
QUIET: Final = """
rootLogger.level = error
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
"""


def write_hadoop_settings(folder: Path, settings: dict[str, str]) -> None:
    """Write the file that the suites' `new Configuration()` reads."""
    root = ElementTree.Element("configuration")
    for key, value in settings.items():
        setting = ElementTree.SubElement(root, "property")
        ElementTree.SubElement(setting, "name").text = key
        ElementTree.SubElement(setting, "value").text = value
    ElementTree.ElementTree(root).write(folder / "core-site.xml")


@pytest.mark.parametrize("system", [HOLDFAST_LOCAL_FILES, HADOOP_LOCAL_FILES])
def test_sparks_suites_pass_for_every_file_manager(tmp_path: Path, system: str) -> None:
    require("suites")
    write_hadoop_settings(tmp_path, {**LOCAL_FILES, LOCAL_FILE_SYSTEM_KEY: system})
    (tmp_path / "log4j2.properties").write_text(QUIET)
    jars = Path(pyspark.__file__).parent / "jars"
    command = [str(find_java(os.environ).home / "bin" / "java"), "-Xmx512m", "-Dspark.testing=1"]
    command += [f"-Djava.io.tmpdir={tmp_path}"]
    command += [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED.split()]
    command += ["-cp", f"{tmp_path}:{SUITES}/*:{jars}/*:{state_jar()}", "org.scalatest.tools.Runner"]
    command += ["-R", str(SUITES), "-oW", "-u", str(tmp_path / "reports")]
    command += [word for suite in TESTS for word in ("-s", suite)]
    environment = {**os.environ, "SPARK_TESTING": "1", "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    reports = [ElementTree.parse(file).getroot() for file in (tmp_path / "reports").glob("*.xml")]
    passed = {
        report.attrib["name"]: int(report.attrib["tests"])
        for report in reports
        if {report.attrib[outcome] for outcome in ("errors", "failures")} == {"0"}
    }
    assert passed == TESTS
