"""A MariaDB of this machine, for as long as it is measured."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from holdfast.errors import Failed, NotFound

_PATIENCE_S: Final = 60
_LOOK_S: Final = 0.05
_READY: Final = b"ready for connections"
# What sets up the tables of the server's own.
_SCRIPTS: Final = ("mysql_system_tables.sql", "mysql_system_tables_data.sql")


@contextmanager
def mariadb_server() -> Iterator[str]:
    """A server with its own settings as they come, so that a commit is on disk; yields a database's address.

    Raises:
        NotFound: It is not installed.
        Failed: It does not start.
    """
    program = shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin")
    if program is None:
        raise NotFound("MariaDB is not installed", expected="mariadbd", hint="run `make services`")
    # Not in a folder that is closed to the user that the server runs as.
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-mariadb-"))
    data, log = folder / "data", folder / "log"
    data.mkdir()
    base = [program, "--no-defaults", f"--datadir={data}"]
    if os.geteuid() == 0:
        base.append("--user=nobody")
        shutil.chown(folder, "nobody")
        shutil.chown(data, "nobody")
    try:
        _set_up(base)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        places = [f"--port={port}", "--bind-address=127.0.0.1", f"--socket={data}/s", "--skip-name-resolve"]
        with log.open("wb") as words:
            server = subprocess.Popen([*base, *places], stdout=words, stderr=words)  # noqa: S603
        try:
            _await(server, log)
            yield f"mysql://holdfast:holdfast@127.0.0.1:{port}/measured"
        finally:
            server.terminate()
            server.wait()
    finally:
        shutil.rmtree(folder)


def _set_up(base: list[str]) -> None:
    scripts = "\n".join((Path("/usr/share/mysql") / name).read_text() for name in _SCRIPTS)
    ours = """
        CREATE DATABASE measured;
        FLUSH PRIVILEGES;
        CREATE USER holdfast@'127.0.0.1' IDENTIFIED BY 'holdfast';
        GRANT ALL ON *.* TO holdfast@'127.0.0.1';
    """
    begin = "CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket = NULL;\n"
    done = subprocess.run(  # noqa: S603
        [*base, "--bootstrap"],
        input="\n".join((begin, scripts, ours)),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Failed("MariaDB cannot be set up", found=done.stderr)


def _await(server: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + _PATIENCE_S
    while _READY not in log.read_bytes():
        if server.poll() is not None or time.monotonic() > until:
            raise Failed("MariaDB does not start", found=log.read_text())
        time.sleep(_LOOK_S)
