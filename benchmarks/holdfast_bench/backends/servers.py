"""Servers of this machine that backends keep state in, for as long as they are measured."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.errors import Failed, NotFound
from holdfast_bench.backends.cassandra_node import JARS, CassandraNode

_PATIENCE_S: Final = 30
# As Cassandra's own settings have it: what a node has answered is on disk ten seconds later.
_COMMIT_LOG: Final = ("commitlog_sync: periodic", "commitlog_sync_period: 10000ms")


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """A Redis with an append-only file, as for state that shall outlive it; yields its address.

    Raises:
        NotFound: It is not installed.
        Failed: It does not start.
    """
    program = shutil.which("redis-server")
    if program is None:
        raise NotFound("Redis is not installed", expected="redis-server", hint="run `make services`")
    place = folder / "redis"
    place.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(place), "--save", ""]
    with (place / "log").open("wb") as log:
        server = subprocess.Popen([*command, "--appendonly", "yes"], stdout=log, stderr=log)  # noqa: S603
    try:
        until = time.monotonic() + _PATIENCE_S
        while not _answers(port):
            if server.poll() is not None or time.monotonic() > until:
                raise Failed("Redis does not start", found=(place / "log").read_text())
            time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


@dataclass(frozen=True, slots=True)
class Node:
    """A Cassandra of one node.

    Attributes:
        address: As `hf.Cassandra` takes it.
        folder: Where it keeps its data.
        jmx: The port of this machine by which it is told to write to disk.
    """

    address: str
    folder: str
    jmx: int


@contextmanager
def cassandra_node(folder: Path) -> Iterator[Node]:
    """A Cassandra of one node, with as much memory as a small server has.

    Raises:
        NotFound: It was not fetched.
        Failed: It does not start.
    """
    if not (JARS / ".ready").exists():
        raise NotFound("Cassandra is not installed", expected=str(JARS), hint="run `make services-cassandra`")
    place = folder / "cassandra"
    place.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        jmx = probe.getsockname()[1]
    node = CassandraNode(
        place,
        commit_log=_COMMIT_LOG,
        java=("-Xms2g", "-Xmx2g", "-XX:+UseG1GC"),
        facts={"cassandra.jmx.local.port": str(jmx)},
    )
    try:
        yield Node(node.address, str(place), jmx)
    finally:
        node.kill()


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as line:
        line.sendall(b"PING\r\n")
        return line.recv(8).startswith(b"+PONG")
    return False
