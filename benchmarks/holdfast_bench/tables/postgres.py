"""A PostgreSQL of this machine, for as long as it is measured."""

from __future__ import annotations

import os
import pwd
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


@contextmanager
def postgres_server() -> Iterator[str]:
    """A server with its own settings as they come, so that a commit is on disk; yields its address.

    Raises:
        NotFound: It is not installed.
        Failed: It does not start.
    """
    programs = _programs()
    user = _unprivileged()
    # Not in a folder that is closed to the user that the server runs as.
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-postgres-"))
    if user is not None:
        shutil.chown(folder, user)
    data, log = folder / "data", folder / "log"
    try:
        _done(
            [str(programs / "initdb"), "-D", str(data), "-U", "holdfast", "-A", "trust", "-E", "UTF8"],
            user,
            folder,
        )
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [str(programs / "postgres"), "-D", str(data), "-p", str(port)]
        for setting in ("listen_addresses=127.0.0.1", "unix_socket_directories="):
            command += ["-c", setting]
        with log.open("wb") as words:
            server = subprocess.Popen(command, stdout=words, stderr=words, user=user, cwd=folder)  # noqa: S603
        try:
            _await(programs, server, port, log)
            yield f"postgresql://holdfast@127.0.0.1:{port}/postgres"
        finally:
            server.terminate()
            server.wait()
    finally:
        shutil.rmtree(folder)


def _await(programs: Path, server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    ask = [str(programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
    until = time.monotonic() + _PATIENCE_S
    while subprocess.run(ask, check=False).returncode != 0:  # noqa: S603
        if server.poll() is not None or time.monotonic() > until:
            raise Failed("PostgreSQL does not start", found=log.read_text())
        time.sleep(_LOOK_S)


def _programs() -> Path:
    versions = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    newest = max(versions, key=lambda program: int(program.parts[-3]), default=None)
    if newest is None:
        found = shutil.which("postgres")
        if found is None:
            raise NotFound("PostgreSQL is not installed", expected="postgres", hint="run `make services`")
        newest = Path(found)
    return newest.parent


def _unprivileged() -> str | None:
    """The user to run as: PostgreSQL refuses root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _done(command: list[str], user: str | None, folder: Path) -> None:
    done = subprocess.run(command, user=user, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        raise Failed("PostgreSQL cannot be set up", found=done.stderr)
