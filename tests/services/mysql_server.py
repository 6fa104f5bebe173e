"""A real MariaDB server for the tests: private directory, loopback, free port, ended by its pid."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pymysql
import pytest
from absent_service import absent_service
from loopback import free_ports
from self_signed import self_signed

PATIENCE_S = 60
SHARE = Path("/usr/share/mysql")
PASSWORD = "p@ss:word"


class MariaDB:
    """A running server."""

    def __init__(self, program: str, directory: Path, *, tls: bool = False, durable: bool = False) -> None:
        self.program = program
        self.data = directory / "data"
        self.log = directory / "log"
        self.certificate = directory / "certificate.pem"
        self.settings = [f"--innodb-flush-log-at-trx-commit={int(durable)}"]
        if tls:
            _, key = self_signed(directory)
            key.chmod(0o644)
            self.settings += [f"--ssl-cert={self.certificate}", f"--ssl-key={key}"]
        # The server leaves root's rights behind by itself.
        self.user = ["--user=nobody"] if os.geteuid() == 0 else []
        if self.user:
            shutil.chown(directory, "nobody")
        self._initialise()
        self._databases = count()
        for _ in range(5):  # somebody else may take the port between the look and the start
            (self.port,) = free_ports(1)
            if self._started():
                break
        else:
            pytest.fail(f"MariaDB does not start:\n{self.log.read_text()}")
        self.run(f"CREATE USER holdfast@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'")
        self.run("GRANT ALL ON *.* TO holdfast@'127.0.0.1'")

    @classmethod
    @contextmanager
    def running(cls, *, tls: bool = False, durable: bool = False) -> Iterator[MariaDB]:
        """A server in a directory of its own; what it has committed outlives a kill if it is `durable`."""
        program = shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin")
        if program is None:
            absent_service("MariaDB is not installed; `make services` brings it")
        # Not pytest's own temporary directory: it is closed to the user that the server runs as.
        directory = Path(tempfile.mkdtemp(prefix="holdfast-mariadb-"))
        try:
            server = cls(program, directory, tls=tls, durable=durable)
            try:
                yield server
            finally:
                server.kill()
        finally:
            shutil.rmtree(directory)

    def database(self) -> str:
        """The address of a new, empty database."""
        name = f"test_{next(self._databases)}"
        self.run(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        return f"mysql://holdfast:p%40ss%3Aword@127.0.0.1:{self.port}/{name}"

    def run(self, statement: str) -> Any:
        """Run a statement as root."""
        with pymysql.connect(unix_socket=str(self.data / "s"), user="root", autocommit=True) as connection:
            cursor = connection.cursor()
            cursor.execute(statement)
            return cursor.fetchall()

    def kill(self) -> None:
        """End the server at once, sessions and all."""
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def start(self) -> None:
        """Start it again, where it was."""
        if not self._started():
            pytest.fail(f"MariaDB does not start again:\n{self.log.read_text()}")

    def _initialise(self) -> None:
        """Make the tables of the server's own, as its installer does."""
        files = ("mysql_system_tables.sql", "mysql_system_tables_data.sql")
        texts = [(SHARE / file).read_text() for file in files]
        self.data.mkdir()
        if self.user:
            shutil.chown(self.data, "nobody")
        command = [self.program, "--no-defaults", "--bootstrap", f"--datadir={self.data}", *self.user]
        begin = "CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket = NULL;\n"
        done = subprocess.run(
            command, input=begin + "\n".join(texts), capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            pytest.fail(f"MariaDB cannot be set up:\n{done.stdout}{done.stderr}")

    def _started(self) -> bool:
        command = [
            self.program,
            "--no-defaults",
            f"--datadir={self.data}",
            f"--socket={self.data}/s",
            *self.user,
        ]
        command += ["--bind-address=127.0.0.1", f"--port={self.port}", "--skip-name-resolve", *self.settings]
        with self.log.open("ab") as log:
            begin = log.tell()
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        until = time.monotonic() + PATIENCE_S
        while self.process.poll() is None and time.monotonic() < until:
            if b"ready for connections" in self.log.read_bytes()[begin:]:
                return True
            time.sleep(0.05)
        return False


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[MariaDB]:
    """One server for the whole session."""
    with MariaDB.running() as server:
        yield server
