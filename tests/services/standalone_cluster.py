"""Spark's standalone master and two workers for a test, and the executors that they have started."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.config.spark_defaults import SHORT_LIVED
from holdfast_bench.cluster import standalone


class StandaloneCluster(standalone.StandaloneCluster):
    """A master and workers of one core."""

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


def python_without_us(folder: Path) -> Path:
    """A Python that has the packages of this one, and neither this package nor the path to its sources."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    own = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    # Links to all but this package's metadata and the `.pth` file that leads to its sources.
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "holdfast" not in entry.name and entry.suffix != ".pth":
            link = Path(own) / entry.name
            if not link.exists():
                link.symlink_to(entry)
    return folder / "bin" / "python"


def small_executors(python: Path) -> dict[str, str]:
    """Settings of a driver on the loopback and of small executors, which have this Python."""
    return {
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": SHORT_LIVED["spark.driver.extraJavaOptions"],
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.pyspark.python": str(python),
        "spark.pyspark.driver.python": str(python),
    }


@pytest.fixture
def standalone_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """One cluster for one test."""
    with StandaloneCluster(tmp_path_factory.mktemp("standalone")) as cluster:
        yield cluster
