"""Two directories that change places in one step, so that nobody ever finds neither."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Final

from holdfast.errors import Unsupported

_HERE: Final = -100
_EXCHANGE: Final = 2


def exchange(one: Path, other: Path) -> None:
    """Have two directories of one file system change places.

    At any moment, and after a crash, each name leads to one of the two.

    Raises:
        Unsupported: The system, or the file system, cannot do it.
    """
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    found = -1 if call is None else call(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE)
    if found != 0:
        reason = "no such call" if call is None else os.strerror(ctypes.get_errno())
        raise Unsupported(
            "two directories cannot change places in one step here",
            where=str(one),
            found=reason,
            expected="Linux, and a file system that knows how, such as ext4, XFS or Btrfs",
        )
    for folder in {one.parent, other.parent}:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
