"""A real YARN for the tests: a ResourceManager and a NodeManager on the loopback, ended by their pids."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hdfs_cluster import JARS as HADOOP
from hdfs_cluster import write_settings
from loopback import free_ports
from required import require

from holdfast.config.installed_spark import spark_home
from holdfast.engine.session.java import find_java, java_home_for_spark

LOGGER = HADOOP.parent / "yarn"
PATIENCE_S = 120
_HOST = "127.0.0.1"
_SERVER = "org.apache.hadoop.yarn.server"
_MEMORY_MB = 6144
# The container of a driver in cluster mode, and that of an executor.
DRIVER, EXECUTOR = b"deploy.yarn.ApplicationMaster\0", b"YarnCoarseGrainedExecutorBackend\0"
_LOG = """log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %c: %m%n
"""
_OPENS = ("java.base/java.lang", "java.base/java.util", "java.base/java.net")


class YarnCluster:
    """A running YARN of one node, which ends a container that outgrows its memory.

    Attributes:
        conf_dir: What `HADOOP_CONF_DIR` has to be for Spark to reach it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.conf_dir = folder / "conf"
        self.conf_dir.mkdir()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._java_home = java_home_for_spark(find_java(os.environ), folder)
        client, scheduler, tracker, admin, web, node, localizer, node_web = free_ports(8)
        write_settings(
            self.conf_dir / "core-site.xml",
            {
                "fs.defaultFS": "file:///",
                "hadoop.tmp.dir": str(folder / "tmp"),
                "io.native.lib.available": "false",
            },
        )
        write_settings(
            self.conf_dir / "yarn-site.xml",
            {
                "yarn.resourcemanager.hostname": _HOST,
                "yarn.resourcemanager.bind-host": _HOST,
                "yarn.resourcemanager.address": f"{_HOST}:{client}",
                "yarn.resourcemanager.scheduler.address": f"{_HOST}:{scheduler}",
                "yarn.resourcemanager.resource-tracker.address": f"{_HOST}:{tracker}",
                "yarn.resourcemanager.admin.address": f"{_HOST}:{admin}",
                "yarn.resourcemanager.webapp.address": f"{_HOST}:{web}",
                "yarn.nodemanager.hostname": _HOST,
                "yarn.nodemanager.bind-host": _HOST,
                "yarn.nodemanager.address": f"{_HOST}:{node}",
                "yarn.nodemanager.localizer.address": f"{_HOST}:{localizer}",
                "yarn.nodemanager.webapp.address": f"{_HOST}:{node_web}",
                "yarn.nodemanager.local-dirs": str(folder / "local"),
                "yarn.nodemanager.log-dirs": str(folder / "logs"),
                "yarn.nodemanager.resource.memory-mb": str(_MEMORY_MB),
                "yarn.nodemanager.resource.cpu-vcores": "4",
                "yarn.nodemanager.vmem-check-enabled": "false",
                "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99",
                "yarn.scheduler.minimum-allocation-mb": "128",
                "yarn.scheduler.maximum-allocation-mb": str(_MEMORY_MB),
            },
        )
        (self.conf_dir / "log4j.properties").write_text(_LOG)
        write_settings(
            self.conf_dir / "capacity-scheduler.xml",
            {
                "yarn.scheduler.capacity.root.queues": "default",
                "yarn.scheduler.capacity.root.default.capacity": "100",
                "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
            },
        )
        self._start("resourcemanager", f"{_SERVER}.resourcemanager.ResourceManager")
        self._start("nodemanager", f"{_SERVER}.nodemanager.NodeManager")
        self._await("nodemanager", "Registered with ResourceManager as")

    def containers(self, kind: bytes) -> list[int]:
        """The JVMs of the containers of a kind that run now."""
        return [pid for pid, words in self._below() if kind in words and b"/java\0" in words]

    def stop(self) -> None:
        """End both, and what their containers have left."""
        for process in self._processes:
            process.kill()
            process.wait(PATIENCE_S)
        for pid, _ in self._below():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _below(self) -> Iterator[tuple[int, bytes]]:
        """The processes that work in its directories, and how they were called."""
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and (entry / "cwd").readlink().is_relative_to(self._folder / "local"):
                    yield int(entry.name), (entry / "cmdline").read_bytes()

    def _start(self, name: str, main: str) -> None:
        opens = [f"--add-opens={package}=ALL-UNNAMED" for package in _OPENS]
        command = [f"{self._java_home}/bin/java", "-Xmx384m", "-XX:TieredStopAtLevel=1", *opens]
        command += ["-cp", f"{self.conf_dir}:{LOGGER}/*:{HADOOP}/*", main]
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes.append(
                subprocess.Popen(
                    command,
                    stdout=log,
                    stderr=log,
                    cwd=self._folder,
                    env={**_plain_environ(), "JAVA_HOME": str(self._java_home)},
                    start_new_session=True,
                )
            )

    def _await(self, name: str, words: str) -> None:
        log, until = self._folder / f"{name}.log", time.monotonic() + PATIENCE_S
        while words not in log.read_text():
            if time.monotonic() > until or any(process.poll() is not None for process in self._processes):
                self.stop()
                pytest.fail(f"YARN does not start:\n{log.read_text()[-3000:]}")
            time.sleep(0.05)


def yarn_conf() -> dict[str, str]:
    """What Spark needs to know for it: its own jars are read where they are."""
    return {"spark.yarn.jars": f"local:{spark_home(os.environ)}/jars/*", "spark.yarn.am.memory": "512m"}


def _plain_environ() -> dict[str, str]:
    """An environment that leads containers to no Python of ours."""
    foreign = ("PYTHON", "PYSPARK_", "HOLDFAST_", "VIRTUAL_ENV", "SPARK_", "HADOOP_")
    return {name: value for name, value in os.environ.items() if not name.startswith(foreign)}


@pytest.fixture
def yarn_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnCluster]:
    """One cluster for one test."""
    require("yarn", "hdfs", "java")
    cluster = YarnCluster(tmp_path_factory.mktemp("yarn"))
    yield cluster
    cluster.stop()
