"""The sockets of Spark's Python workers, and the modules and files sent to the workers.

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


# The system limits the path of a socket to 104 bytes or more, and Spark's names take 42.
_LONGEST = 60
# A newer socket may be about to be opened.
_OLD_S = 60.0
_OPEN = Path("/proc/net/unix")
_NETWORK = Path("/proc/self/ns/net")


def socket_folder(base: Path | None = None) -> Path | None:
    """Return this user's socket directory after removing unused sockets; None if it cannot be used."""
    try:
        # Containers may share a directory but cannot detect each other's use of sockets.
        folder = (base or Path(tempfile.gettempdir())) / f"holdfast-{os.getuid()}-{_NETWORK.stat().st_ino}"
        # Spark passes the path to a worker in lower case.
        if len(os.fsencode(folder)) > _LONGEST or str(folder) != str(folder).lower():
            return None
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return None  # the directory belongs to a different user
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
    """Make a file available to every later task, as `SparkFiles.get(name)`.

    Workers fetch the file from the driver when they first run a task, so it remains on the driver until the
    session ends.

    Args:
        spark: The session.
        name: The name of the file, unique in the session.
        write: A function that writes the file to a local path.
    """
    context: Any = spark.sparkContext
    path = str(Path(context._temp_dir) / name)
    write(path)
    context.addFile(path)
