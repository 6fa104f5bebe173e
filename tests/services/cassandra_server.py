"""A real Cassandra node for the tests, ended by its process."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast_bench.backends.cassandra_node import JARS, PATIENCE_S, CassandraNode

CLIENT: Final = JARS.parent / "state-clients" / "cassandra"


class CassandraServer(CassandraNode):
    """A node that tests ask, freeze and kill."""

    def ask(self, cql: str, user: str | None = None, password: str | None = None) -> list[Any]:
        """Give it a statement through Python's driver; returns the rows."""
        from cassandra.auth import PlainTextAuthProvider
        from cassandra.cluster import Cluster

        login = PlainTextAuthProvider(user, password) if user else None
        cluster = Cluster(["127.0.0.1"], port=self.port, auth_provider=login, protocol_version=5)
        try:
            return list(cluster.connect().execute(cql))
        finally:
            cluster.shutdown()

    def wait_until_logged(self, text: str) -> None:
        """Wait until this is in its log."""
        until = time.monotonic() + PATIENCE_S
        while text not in (self.folder / "log").read_text():
            assert time.monotonic() < until, f"Cassandra has not logged: {text}"
            time.sleep(0.05)

    def freeze(self) -> None:
        """Let it answer nothing."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it; nobody needs its data any more."""
        self.kill()


def started(settings: str = "") -> Iterator[CassandraServer]:
    """A server of its own, for one user."""
    if not (JARS / ".ready").exists() or not CLIENT.is_dir():
        pytest.skip("Cassandra is not there; `make services-cassandra` fetches it")
    if shutil.which("java") is None:
        pytest.skip("Cassandra needs Java")
    pytest.importorskip("cassandra", reason="comes with the extra cassandra")
    folder = Path(tempfile.mkdtemp(prefix="holdfast-cassandra-"))
    try:
        server = CassandraServer(folder, settings)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def cassandra_server() -> Iterator[CassandraServer]:
    """One server for all tests that do nothing to it."""
    yield from started()


@pytest.fixture(scope="session")
def own_cassandra() -> Iterator[CassandraServer]:
    """A server that tests may freeze and kill, if they leave it running: it takes seconds to start."""
    yield from started()
