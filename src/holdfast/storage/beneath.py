"""Open what is below a directory without following a symbolic link.

A person has named the directory, which may be reached through links. Others have written what is in it, and a
link there could lead to any file of this user. Swapping a directory for a link meanwhile changes nothing: the
kernel resolves the whole path at once where it can, and elsewhere the directories are opened one by one.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Callable
from functools import cache
from typing import Final

# A directory that is opened for its paths alone asks for no right to list it.
FOLDER: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW
LISTED: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# Opening a FIFO without O_NONBLOCK would wait for its writer.
FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_ROOT: Final = FOLDER & ~os.O_NOFOLLOW
# openat2(2), which the C library does not wrap; its number is the same on every processor that Spark runs on.
_OPENAT2: Final = 437
_HERE: Final = -100  # AT_FDCWD: paths are absolute
_NO_SYMLINKS: Final = 0x04


def open_beneath(root: str, path: str, flags: int) -> int:
    """Open a file or a directory; the caller closes the descriptor.

    Args:
        root: An absolute path, which may have links in it.
        path: A path below it with `/` between its parts; empty for the root itself.
        flags: One of `FOLDER`, `LISTED` and `FILE`. A `FILE` may turn out to be anything but a link: look at
            the descriptor.

    Raises:
        OSError: It cannot be opened. A link in the path is `ELOOP` or `ENOTDIR`.
    """
    resolve = _resolver()
    if resolve is not None:
        descriptor = resolve(f"{root}/{path}" if path else root, flags)
        if descriptor >= 0:
            return descriptor
        # What is wrong is found below; nothing may be, if there is a link in the root.
    here = os.open(root, _ROOT)
    folder, _, name = path.rpartition("/")
    for part in folder.split("/") if folder else ():
        here = _instead(here, part, FOLDER)
    return _instead(here, name or ".", flags)


def _instead(here: int, name: str, flags: int) -> int:
    try:
        return os.open(name, flags, dir_fd=here)
    finally:
        os.close(here)


@cache
def _resolver() -> Callable[[str, int], int] | None:
    """Return a function that opens an absolute path without any link, or returns -1.

    None where the kernel has no such call, or a sandbox forbids it.
    """
    if not sys.platform.startswith("linux"):
        return None
    call = ctypes.CDLL(None).syscall
    call.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
    call.restype = ctypes.c_long
    # The kernel's `struct open_how`: flags, mode, and how to resolve the path.
    how = {
        flags: struct.pack("QQQ", flags | os.O_CLOEXEC, 0, _NO_SYMLINKS) for flags in (FOLDER, LISTED, FILE)
    }
    size = len(how[FILE])
    encoding = sys.getfilesystemencoding()

    def resolve(path: str, flags: int) -> int:
        name = path.encode(encoding, "surrogateescape")
        # C would take the part before a NUL.
        return -1 if b"\0" in name else call(_OPENAT2, _HERE, name, how[flags], size)

    descriptor = resolve("/", FOLDER)
    if descriptor < 0:
        return None
    os.close(descriptor)
    return resolve
