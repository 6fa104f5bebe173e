"""Two directories change places at one stroke: whoever looks sees the one or the other, never neither."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path
from typing import Any, Final

from holdfast.errors import NotFound, Unavailable, Unsupported
from holdfast.storage.local import flush_folder

_HERE: Final = -100  # AT_FDCWD: paths are absolute
_LINUX_EXCHANGE: Final = 2
_MAC_SWAP: Final = 2
_LOOK_AT_DISK: Final = "see that the disk is there and that this user may write to it, then try again"
_NOT_OFFERED: Final = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EXDEV)


def exchange(one: Path, other: Path) -> None:
    """Let two directories of one file system change places; on disk when this returns.

    Raises:
        NotFound: One of them is not there.
        Unsupported: This machine or this file system has no such thing; both are where they were.
        Unavailable: It did not work; both are where they were.
    """
    call = _call()
    if call is None:
        raise _not_offered(one, f"no such call on {sys.platform}")
    ctypes.set_errno(0)
    if call(os.fsencode(one.absolute()), os.fsencode(other.absolute())) != 0:
        number = ctypes.get_errno()
        if number == errno.ENOENT:
            raise NotFound(
                "there is no such directory", where=f"{one} or {other}", hint="check both addresses"
            )
        if number in _NOT_OFFERED:
            raise _not_offered(one, os.strerror(number))
        raise Unavailable(
            "two directories could not change places",
            where=str(one),
            found=os.strerror(number),
            hint=_LOOK_AT_DISK,
        )
    for folder in {one.absolute().parent, other.absolute().parent}:
        flush_folder(folder)


def _call() -> Any:
    """The system's own call for it."""
    library = ctypes.CDLL(None, use_errno=True)
    if sys.platform.startswith("linux") and hasattr(library, "renameat2"):
        return lambda one, other: library.renameat2(_HERE, one, _HERE, other, _LINUX_EXCHANGE)
    if sys.platform == "darwin" and hasattr(library, "renamex_np"):
        return lambda one, other: library.renamex_np(one, other, _MAC_SWAP)
    return None


def _not_offered(where: Path, found: str) -> Unsupported:
    return Unsupported(
        "two directories cannot change places at one stroke here",
        where=str(where),
        found=found,
        expected="a file system that can, such as ext4, xfs, btrfs or tmpfs on Linux",
        hint="write to a directory of another name, and start the query on that",
    )
