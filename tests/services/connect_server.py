"""A real server of Spark Connect for the tests: a process of its own on loopback, ended by its pid."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback import free_ports, listens
from required import require

PATIENCE_S = 300
_PROGRAM = Path(__file__).parent / "jobs" / "connect_server.py"


@pytest.fixture(scope="session")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of one server for the whole session."""
    require("connect")
    folder = tmp_path_factory.mktemp("connect")
    (port,) = free_ports(1)
    with (folder / "log").open("wb") as log:
        command = [sys.executable, str(_PROGRAM), str(port), str(folder)]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, env={**os.environ})
    try:
        if not listens(server, port, PATIENCE_S):
            pytest.fail(f"the server does not start:\n{(folder / 'log').read_text()[-3000:]}")
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.communicate(timeout=PATIENCE_S)  # the end of its input is its order to stop
