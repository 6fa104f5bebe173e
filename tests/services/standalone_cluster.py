"""Spark's standalone master and two workers, from the pip package: loopback, free ports, ended by pid.

Nothing of this tree is on the path of Python in the workers, and each works in a directory of its own.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from loopback import free_ports

from holdfast.config.spark_defaults import SHORT_LIVED
from holdfast.engine.session.java import find_java, java_home_for_spark

PATIENCE_S: Final = 120
WORKERS: Final = 2
_DEPLOY: Final = "org.apache.spark.deploy"


class StandaloneCluster:
    """A master and workers of one core.

    Args:
        folder: Where they work.

    Attributes:
        workers: The processes of the workers.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workers: list[int] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        port, page = free_ports(2)
        self.address = f"spark://127.0.0.1:{port}"
        try:
            master = self._start(f"{_DEPLOY}.master.Master", "master", port, page)
            self._await(master, "elected leader")
            started = []
            for number in range(WORKERS):
                port, page = free_ports(2)
                name = f"worker{number}"
                words = ("-c", "1", "-m", "1g", "--work-dir", str(folder / name), self.address)
                started.append(self._start(f"{_DEPLOY}.worker.Worker", name, port, page, *words))
                self.workers.append(self._processes[-1].pid)
            for worker in started:
                self._await(worker, "Successfully registered")
        except BaseException:
            self.stop()
            raise

    def _start(self, main: str, name: str, port: int, page: int, *words: str) -> Path:
        import pyspark

        home = Path(pyspark.__file__).parent
        foreign = ("PYTHON", "PYSPARK_", "HOLDFAST_", "VIRTUAL_ENV")
        environ = {
            **{key: value for key, value in os.environ.items() if not key.startswith(foreign)},
            "SPARK_HOME": str(home),
            "JAVA_HOME": str(java_home_for_spark(find_java(os.environ), self.folder)),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED["spark.driver.extraJavaOptions"],
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


def python_without_us(folder: Path) -> Path:
    """A Python that has the packages of this one, and neither this package nor the path to its sources."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    own = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    # A path alone: the `.pth` files of the other environment, which lead to the sources, are not read.
    (Path(own) / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return folder / "bin" / "python"


@pytest.fixture
def standalone_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """One cluster for one test."""
    cluster = StandaloneCluster(tmp_path_factory.mktemp("standalone"))
    try:
        yield cluster
    finally:
        cluster.stop()
