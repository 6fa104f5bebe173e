"""Spark's standalone master and two workers, from the pip package: loopback, free ports, ended by pid."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from loopback import free_ports

from holdfast.engine.session.java import find_java, java_home_for_spark

PATIENCE_S: Final = 120
WORKERS: Final = 2
_DEPLOY: Final = "org.apache.spark.deploy"


class StandaloneCluster:
    """A master and workers of one core.

    Args:
        folder: Where they work.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        port, page = free_ports(2)
        self.address = f"spark://127.0.0.1:{port}"
        try:
            master = self._start(f"{_DEPLOY}.master.Master", "master", port, page)
            self._await(master, "elected leader")
            for number in range(WORKERS):
                port, page = free_ports(2)
                size = ("-c", "1", "-m", "1g")
                worker = self._start(
                    f"{_DEPLOY}.worker.Worker", f"worker{number}", port, page, *size, self.address
                )
                self._await(worker, "Successfully registered")
        except BaseException:
            self.stop()
            raise

    def _start(self, main: str, name: str, port: int, page: int, *words: str) -> Path:
        import pyspark

        home = Path(pyspark.__file__).parent
        environ = {
            **os.environ,
            "SPARK_HOME": str(home),
            "JAVA_HOME": str(java_home_for_spark(find_java(os.environ), self.folder)),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(self.folder / "work"),
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
        }
        log = self.folder / f"{name}.log"
        command = [str(home / "bin" / "spark-class"), main, "--host", "127.0.0.1"]
        command += ["--port", str(port), "--webui-port", str(page), *words]
        with log.open("wb") as output:
            self._processes.append(
                subprocess.Popen(command, stdout=output, stderr=output, env=environ, start_new_session=True)
            )
        return log

    def _await(self, log: Path, words: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while words not in log.read_text():
            if self._processes[-1].poll() is not None or time.monotonic() > until:
                pytest.fail(f"{log.stem} does not start:\n{log.read_text()}")
            time.sleep(0.05)

    def executors(self) -> list[int]:
        """The processes of the executors that run now."""
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
                here = re.search(rb"--worker-url\0spark://Worker@127\.0\.0\.1:\d+", words)
                if here and (entry / "cwd").readlink().is_relative_to(self.folder):
                    found.append(int(entry.name))
        return found

    def stop(self) -> None:
        """End all of it."""
        for process in reversed(self._processes):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE_S)


@pytest.fixture
def standalone_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """One cluster for one test."""
    cluster = StandaloneCluster(tmp_path_factory.mktemp("standalone"))
    try:
        yield cluster
    finally:
        cluster.stop()
