"""The directory in which Spark and its Python workers on this machine find each other's sockets.

A JVM removes its sockets when it ends and not when it is killed. In a directory of their own those that
nobody has open can be told from others and be cleared away.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

# The system's limit for a socket's path is 104 bytes or more, and Spark's names take 42.
_LONGEST = 60
# A younger one may be about to be opened.
_OLD_S = 60.0
_OPEN = Path("/proc/net/unix")
_NETWORK = Path("/proc/self/ns/net")


def socket_folder(base: Path | None = None) -> Path | None:
    """Give this user's directory, without the sockets of the dead; None where there can be none."""
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
