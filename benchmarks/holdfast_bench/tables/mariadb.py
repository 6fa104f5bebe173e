"""A MariaDB of this machine, for as long as it is measured or tested."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pymysql

from holdfast.errors import Failed, NotFound

_USER: Final = "holdfast"
_PASSWORD: Final = "p@ss:word"  # noqa: S105  of a server that lives for minutes
_TRIES: Final = 5
_HOST: Final = "127.0.0.1"
_PATIENCE_S: Final = 60
_LOOK_S: Final = 0.05
_READY: Final = b"ready for connections"
# What sets up the tables of the server's own.
_SCRIPTS: Final = ("mysql_system_tables.sql", "mysql_system_tables_data.sql")


class MariaDB:
    """A server that runs.

    Args:
        folder: Where it works and writes its log; open to the user that the server runs as.
        settings: Settings of the server; with none of them a commit is on disk.

    Raises:
        NotFound: MariaDB is not installed.
        Failed: It does not start.
    """

    def __init__(self, folder: Path, *settings: str) -> None:
        program = shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin")
        if program is None:
            raise NotFound("MariaDB is not installed", expected="mariadbd", hint="run `make services`")
        self._data, self._log = folder / "data", folder / "log"
        self._data.mkdir()
        self._command = [program, "--no-defaults", f"--datadir={self._data}"]
        if os.geteuid() == 0:
            # The server leaves root's rights behind by itself.
            self._command.append("--user=nobody")
            shutil.chown(folder, "nobody")
            shutil.chown(self._data, "nobody")
        self._set_up()
        self._command += [
            f"--bind-address={_HOST}",
            f"--socket={self._data}/s",
            "--skip-name-resolve",
            *settings,
        ]
        self._databases = count()
        for tries in range(_TRIES):
            with socket.socket() as probe:
                probe.bind((_HOST, 0))
                self.port = probe.getsockname()[1]
            try:
                self.start()
            except Failed:  # somebody else may have taken the port since
                if tries == _TRIES - 1:
                    raise
            else:
                return

    @classmethod
    @contextmanager
    def running(cls, *settings: str) -> Iterator[MariaDB]:
        """A server in a directory of its own, which is gone at the end."""
        # Not in a folder that is closed to the user that the server runs as.
        folder = Path(tempfile.mkdtemp(prefix="holdfast-mariadb-"))
        try:
            server = cls(folder, *settings)
            try:
                yield server
            finally:
                server.kill()
        finally:
            shutil.rmtree(folder)

    def database(self) -> str:
        """The address of a new, empty database, for a user who may do everything."""
        name = f"database_{next(self._databases)}"
        asked = {"host": _HOST, "port": self.port, "user": _USER, "password": _PASSWORD}
        with closing(pymysql.connect(**asked)) as connection:
            connection.cursor().execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        return f"mysql://{_USER}:{quote(_PASSWORD, safe='')}@{_HOST}:{self.port}/{name}"

    def start(self) -> None:
        """Start it, or start it again where it was."""
        with self._log.open("ab") as log:
            begin = log.tell()
            self._process = subprocess.Popen(  # noqa: S603
                [*self._command, f"--port={self.port}"], stdout=log, stderr=log, start_new_session=True
            )
        until = time.monotonic() + _PATIENCE_S
        while _READY not in self._log.read_bytes()[begin:]:
            if self._process.poll() is not None or time.monotonic() > until:
                raise Failed("MariaDB does not start", found=self._log.read_text())
            time.sleep(_LOOK_S)

    def kill(self) -> None:
        """End it at once, sessions and all."""
        self._process.kill()
        self._process.wait(_PATIENCE_S)

    def _set_up(self) -> None:
        begin = "CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket = NULL;\n"
        scripts = "\n".join((Path("/usr/share/mysql") / name).read_text() for name in _SCRIPTS)
        ours = f"""
            FLUSH PRIVILEGES;
            CREATE USER {_USER}@'{_HOST}' IDENTIFIED BY '{_PASSWORD}';
            GRANT ALL ON *.* TO {_USER}@'{_HOST}';
        """
        done = subprocess.run(  # noqa: S603
            [*self._command, "--bootstrap"],
            input="\n".join((begin, scripts, ours)),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise Failed("MariaDB cannot be set up", found=done.stderr)
