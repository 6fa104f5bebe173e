"""TiKV for the tests: the test double of its authors behind its protocol, or a cluster that somebody has."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from jvm_table import tikv_place
from loopback import free_ports
from required import require

PATIENCE_S: Final = 60
SERVICES: Final = Path(__file__).parents[2] / ".services"
DOUBLE: Final = SERVICES / "bin" / "tikv-double"
# Addresses of the placement drivers of a cluster to run the tests against; scripts/try-tikv.sh sets it.
CLUSTER_VARIABLE: Final = "HOLDFAST_TIKV"
# What the names of all stores of this run begin with: a cluster may have seen others.
RUN: Final = f"holdfast-test-{uuid.uuid4().hex}-"


class TikvServer:
    """A placement driver and three stores in one process; its data is on disk and survives a kill.

    Args:
        folder: Where it keeps its data.
        settings: Further arguments of the program.
    """

    def __init__(self, folder: Path, *settings: str) -> None:
        self.folder = folder
        self._settings = settings
        self._ports = free_ports(4)
        self.address = f"127.0.0.1:{self._ports[0]}"
        self.start()

    def start(self) -> None:
        """Start it, on the ports and the data that it has had; its regions are one again."""
        stores = ",".join(f"127.0.0.1:{port}" for port in self._ports[1:])
        words = [
            str(DOUBLE),
            "-pd",
            self.address,
            "-stores",
            stores,
            "-data",
            str(self.folder),
            *self._settings,
        ]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        if self._answer() != "ready":
            pytest.fail(f"TiKV's test double does not start:\n{(self.folder / 'log').read_text()}")

    def tell(self, words: str) -> str:
        """Give it a command of main.go's; returns its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        """End it as a power failure does."""
        self.process.send_signal(signal.SIGKILL)
        self._ended()

    def freeze(self) -> None:
        """Let it answer nothing."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it."""
        self.thaw()
        self.process.terminate()
        self._ended()

    def _ended(self) -> None:
        self.process.wait(PATIENCE_S)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


class CountedRequests:
    """Ends all connections to a double after so many requests, as a proxy does after so many bytes.

    So `direct` can be used again once it is mended.

    Args:
        server: What nobody else uses.
    """

    def __init__(self, server: TikvServer) -> None:
        self._server = server
        self._before = 0
        self.address = self.direct = server.address
        self.passed = 0

    def allow(self, number: int | None, *, once: bool = False) -> None:
        """See `CountingProxy`; the last of these requests is done and not answered."""
        self._before = int(self._server.tell("requests"))
        if number is not None:
            self._server.tell(f"{'cut-once' if once else 'cut'} {number}")

    def mend(self) -> None:
        """Do all requests from now."""
        self.passed = int(self._server.tell("requests")) - self._before
        self._server.tell("mend")


def started(*settings: str) -> Iterator[TikvServer]:
    """One of its own, for one user."""
    require("tikv", "tikv-client")
    folder = Path(tempfile.mkdtemp(prefix="holdfast-tikv-"))
    try:
        server = TikvServer(folder, *settings)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def tikv_address(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where TiKV is, for all tests that do nothing to it; a cluster is left without their keys."""
    cluster = os.environ.get(CLUSTER_VARIABLE)
    if not cluster:
        yield request.getfixturevalue("tikv_server").address
        return
    jvm = request.getfixturevalue("spark")._jvm
    yield cluster
    # What Spark still has to tell becomes a key, too.
    request.getfixturevalue("spark")._jsc.sc().listenerBus().waitUntilEmpty()
    place = tikv_place(request.getfixturevalue("spark"), cluster)
    names = jvm.org.tikv.shade.com.google.protobuf.ByteString.copyFromUtf8(RUN)
    jvm.holdfast.state.TiKvClients.take(place).plain().deletePrefix(names)
    jvm.holdfast.state.TiKvClients.giveBack(place)


@pytest.fixture
def moving_tikv(request: pytest.FixtureRequest, tikv_address: str) -> Iterator[str]:
    """The same; a double splits regions and moves leaders all the time while the test runs."""
    if os.environ.get(CLUSTER_VARIABLE):
        yield tikv_address
        return
    server: TikvServer = request.getfixturevalue("tikv_server")
    server.tell("disturb 13")
    yield tikv_address
    server.tell("disturb 0")


@pytest.fixture(scope="session")
def tikv_server() -> Iterator[TikvServer]:
    """One double for all tests that do nothing to it."""
    yield from started()


@pytest.fixture
def own_tikv() -> Iterator[TikvServer]:
    """One that the test may kill, freeze, cut off or disturb."""
    yield from started()
