"""A real PostgreSQL server for the tests: private directory, loopback, free port, ended by its pid."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from loopback import free_ports
from required import require

PATIENCE_S = 60


def unprivileged() -> str | None:
    """The user to run as: PostgreSQL refuses root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


class Server:
    """A running server."""

    def __init__(self, programs: Path, directory: Path) -> None:
        self.programs = programs
        self.data = directory / "data"
        self.log = directory / "log"
        self.user = unprivileged()
        if self.user is not None:
            shutil.chown(directory, self.user)
        self._run("initdb", "-D", str(self.data), "-U", "holdfast", "-A", "trust", "-E", "UTF8", "--no-sync")
        self._databases = count()
        self._start()

    def database(self) -> str:
        """The address of a new, empty database."""
        name = f"test_{next(self._databases)}"
        self._run(
            "createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "holdfast", "--no-password", name
        )
        return f"postgresql://holdfast@127.0.0.1:{self.port}/{name}"

    def stop(self) -> None:
        """End the server at once, sessions and all."""
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(PATIENCE_S)

    def _start(self) -> None:
        for _ in range(5):  # somebody else may take the port between the look and the start
            (self.port,) = free_ports(1)
            settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off"]
            command = [str(self.programs / "postgres"), "-D", str(self.data), "-p", str(self.port)]
            for setting in settings:
                command += ["-c", setting]
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(
                    command, stdout=log, stderr=log, user=self.user, cwd=self.data, start_new_session=True
                )
            if self._ready():
                return
        pytest.fail(f"PostgreSQL does not start:\n{self.log.read_text()}")

    def _ready(self) -> bool:
        until = time.monotonic() + PATIENCE_S
        ask = [str(self.programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        while self.process.poll() is None and time.monotonic() < until:
            if subprocess.run(ask, check=False).returncode == 0:
                return True
            time.sleep(0.05)
        return False

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self.programs / program), *arguments],
            user=self.user,
            cwd=self.data.parent,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            pytest.fail(f"{program} failed:\n{done.stderr}")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """One server for the whole session."""
    programs = require("postgresql")
    # Not pytest's own temporary directory: it is closed to the user that the server runs as.
    directory = Path(tempfile.mkdtemp(prefix="holdfast-postgres-"))
    try:
        server = Server(programs, directory)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory)
