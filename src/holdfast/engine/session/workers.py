"""Manage the sockets of Spark's Python workers, and send them modules and files.

A JVM removes its sockets when it ends, but not when it is killed. In a separate directory, sockets that no
process has open can be identified and removed.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# The system's limit for a socket's path is 104 bytes or more, and Spark's names take 42.
_LONGEST = 60
# A younger one may be about to be opened.
_OLD_S = 60.0
_OPEN = Path("/proc/net/unix")
_NETWORK = Path("/proc/self/ns/net")


def socket_folder(base: Path | None = None) -> Path | None:
    """Return this user's socket directory, cleared of unused sockets; None if it cannot be used."""
    try:
        # Containers may share a directory, and do not see each other's sockets.
        folder = (base or Path(tempfile.gettempdir())) / f"holdfast-{os.getuid()}-{_NETWORK.stat().st_ino}"
        if len(os.fsencode(folder)) > _LONGEST:
            return None
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return None  # somebody else was here first
        _clear(folder)
    except OSError:
        return None
    return folder


def _clear(folder: Path) -> None:
    found = list(folder.glob(".*.sock"))
    if not found:
        return
    in_use = _OPEN.read_text(encoding="utf-8", errors="replace")
    for socket in found:
        try:
            if time.time() - socket.stat().st_mtime > _OLD_S and str(socket) not in in_use:
                socket.unlink()
        except FileNotFoundError:  # noqa: PERF203 - its owner, or another driver, has removed it
            continue


def ship_by_value(module: ModuleType) -> None:
    """Send a job file's functions to the workers by value, because they cannot import the file."""
    from pyspark.cloudpickle import register_pickle_by_value

    register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # it carries no types


def send_file(spark: SparkSession, name: str, write: Callable[[str], None]) -> None:
    """Make a file available in every task from now on, as `SparkFiles.get(name)`.

    Workers fetch it from the driver when they first run a task, so it stays on the driver until the session
    ends.

    Args:
        spark: The session.
        name: The file's name, unique in the session.
        write: A function that writes the file to a local path.
    """
    context: Any = spark.sparkContext
    path = str(Path(context._temp_dir) / name)
    write(path)
    context.addFile(path)
