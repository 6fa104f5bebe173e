"""A real HDFS for the tests: a NameNode and a DataNode on the loopback, ended by their pids."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from loopback import free_ports
from required import require

JARS = Path(__file__).parents[2] / ".services" / "hdfs"
PATIENCE_S = 120
_NODES = "org.apache.hadoop.hdfs.server"
_ALIVE = "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"


class Cluster:
    """A running HDFS with one copy of each block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._roots = count()
        self._processes: list[subprocess.Popen[bytes]] = []
        rpc, http, data, data_http, data_ipc = free_ports(5)
        self.address = f"127.0.0.1:{http}"
        self._native = f"hdfs://127.0.0.1:{rpc}"
        write_settings(folder / "core-site.xml", {"fs.defaultFS": f"hdfs://127.0.0.1:{rpc}"})
        write_settings(
            folder / "hdfs-site.xml",
            {
                "dfs.replication": "1",
                "dfs.namenode.name.dir": f"file://{folder}/names",
                "dfs.datanode.data.dir": f"file://{folder}/blocks",
                "dfs.namenode.http-address": self.address,
                "dfs.namenode.rpc-bind-host": "127.0.0.1",
                "dfs.datanode.address": f"127.0.0.1:{data}",
                "dfs.datanode.http.address": f"127.0.0.1:{data_http}",
                "dfs.datanode.ipc.address": f"127.0.0.1:{data_ipc}",
                "dfs.datanode.hostname": "127.0.0.1",
                "dfs.permissions.enabled": "false",
            },
        )
        self._java(f"{_NODES}.namenode.NameNode", "-format", "-nonInteractive").wait(PATIENCE_S)
        self._processes = [
            self._java(f"{_NODES}.namenode.NameNode"),
            self._java(f"{_NODES}.datanode.DataNode"),
        ]
        self._ready()

    def root(self) -> str:
        """The URI of a directory that nobody else uses."""
        return f"webhdfs://{self.address}/test-{next(self._roots)}"

    def native(self, uri: str) -> str:
        """The same place as Hadoop's own client reaches it."""
        return uri.replace(f"webhdfs://{self.address}", self._native)

    def stop(self) -> None:
        """End both."""
        for each in self._processes:
            each.kill()
            each.wait(PATIENCE_S)

    def _java(self, *words: str) -> subprocess.Popen[bytes]:
        command = ["java", "-Xmx384m", "-XX:TieredStopAtLevel=1", "-cp", f"{self._folder}:{JARS}/*", *words]
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder, start_new_session=True)

    def _ready(self) -> None:
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until and all(each.poll() is None for each in self._processes):
            if self._nodes() == 1:
                return
            time.sleep(0.1)
        self.stop()
        pytest.fail(f"HDFS does not start:\n{(self._folder / 'log').read_text()[-3000:]}")

    def _nodes(self) -> int:
        try:
            with urlopen(f"http://{self.address}{_ALIVE}", timeout=5) as answer:
                return int(b'"NumLiveDataNodes" : 1' in answer.read())
        except (URLError, OSError):
            return 0


@pytest.fixture(scope="session")
def hdfs_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for the whole session."""
    require("hdfs", "requests", "java")
    cluster = Cluster(tmp_path_factory.mktemp("hdfs"))
    yield cluster
    cluster.stop()


def write_settings(path: Path, values: dict[str, str]) -> None:
    """A configuration file of Hadoop's."""
    pairs = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>" for name, value in values.items()
    )
    path.write_text(f"<configuration>{pairs}</configuration>")
