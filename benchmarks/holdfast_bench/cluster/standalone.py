"""Spark's standalone master and workers, from the pip package: on loopback, at free ports, ended by pid.

Nothing of this checkout is on the path of Python in the workers, and each works in a directory of its own.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final

from holdfast.config.installed_spark import spark_home
from holdfast.config.spark_defaults import SHORT_LIVED
from holdfast.engine.session.java import find_java, java_home_for_spark
from holdfast.errors import Failed, NotFound

if TYPE_CHECKING:
    from typing_extensions import Self

PATIENCE_S: Final = 300
_LOOK_S: Final = 0.05
_HOST: Final = "127.0.0.1"
_DEPLOY: Final = "org.apache.spark.deploy"
# What would lead executors to this checkout, or to another Python.
_FOREIGN: Final = ("PYTHON", "PYSPARK_", "HOLDFAST_", "VIRTUAL_ENV")


class StandaloneCluster:
    """A master and workers of one core; ended by `stop`, or as a context manager.

    Args:
        folder: Where they work and write their logs.
        workers: How many there are.

    Attributes:
        address: The master's, for `--master`.
        workers: The processes of the workers, each the first of its group.

    Raises:
        Failed: One of them did not start.
    """

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.folder = folder
        self.workers: list[int] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            port = _free_port()
            self.address = f"spark://{_HOST}:{port}"
            master = self._start(f"{_DEPLOY}.master.Master", "master", port)
            self._await(master, "elected leader")
            names = [f"worker{number}" for number in range(workers)]
            logs = [self._start_worker(name) for name in names]
            for log in logs:
                self._await(log, "Successfully registered")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all of it, executors too."""
        for process in reversed(self._processes):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start_worker(self, name: str) -> Path:
        words = ("-c", "1", "-m", "1g", "--work-dir", str(self.folder / name), self.address)
        log = self._start(f"{_DEPLOY}.worker.Worker", name, _free_port(), *words)
        self.workers.append(self._processes[-1].pid)
        return log

    def _start(self, main: str, name: str, port: int, *words: str) -> Path:
        home = spark_home(os.environ)
        if home is None:
            raise NotFound("PySpark is not installed", hint="pip install 'holdfast[spark]'")
        environ = {
            **{key: value for key, value in os.environ.items() if not key.startswith(_FOREIGN)},
            "SPARK_HOME": str(home),
            "JAVA_HOME": str(java_home_for_spark(find_java(os.environ), self.folder)),
            "SPARK_LOCAL_IP": _HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED["spark.driver.extraJavaOptions"],
        }
        log = self.folder / f"{name}.log"
        command = [str(home / "bin" / "spark-class"), main, "--host", _HOST, "--port", str(port)]
        command += ["--webui-port", str(_free_port()), *words]
        with log.open("wb") as output:
            self._processes.append(
                subprocess.Popen(command, stdout=output, stderr=output, env=environ, start_new_session=True)  # noqa: S603 - Spark's own
            )
        return log

    def _await(self, log: Path, words: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while words not in log.read_text():
            if time.monotonic() > until or any(process.poll() is not None for process in self._processes):
                raise Failed("a part of the cluster does not start", where=log.stem, found=log.read_text())
            time.sleep(_LOOK_S)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])
