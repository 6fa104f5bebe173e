"""What a checkpoint's address tells of whether it outlives a machine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Final

from holdfast.config.locations import local_path

_MOUNTS: Final = Path("/proc/mounts")
_IN_MEMORY: Final = frozenset(("tmpfs", "ramfs"))
_OF_CONTAINER: Final = frozenset(("overlay", "aufs"))
_SHARED: Final = frozenset(
    (
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "fuse.ceph",
        "fuse.gcsfuse",
        "fuse.glusterfs",
        "fuse.s3fs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "nfs",
        "nfs4",
        "smb3",
    )
)
_TEMPORARY: Final = tuple(map(PurePosixPath, ("/tmp", "/var/tmp", "/dev/shm")))  # noqa: S108 - looked for
_ESCAPES: Final = (("\\040", " "), ("\\011", "\t"), ("\\134", "\\"))


class Lasting(str, Enum):
    """How long what is at a place lasts."""

    SHARED = "shared"
    DISK = "disk"
    CONTAINER = "container"
    TEMPORARY = "temporary"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a checkpoint is.

    Attributes:
        lasting: How long it lasts there.
        what: What tells it, in words.
    """

    lasting: Lasting
    what: str


def place_of(uri: str) -> Place:
    """Where an address leads. Of a path on this machine it is read what is mounted there."""
    path = local_path(uri)
    if path is None:
        return Place(Lasting.SHARED, f"on {uri.partition(':')[0]}")
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        mounts = ""
    return local_place(PurePosixPath(path), mounts)


def local_place(path: PurePosixPath, mounts: str) -> Place:
    """Where a path leads, by the lines of `/proc/mounts`."""
    kind = _file_system(path, mounts)
    if kind in _IN_MEMORY:
        return Place(Lasting.MEMORY, f"on {kind}, which is memory")
    if kind in _SHARED:
        return Place(Lasting.SHARED, f"on {kind}")
    if any(path.is_relative_to(folder) for folder in _TEMPORARY):
        return Place(Lasting.TEMPORARY, "in a directory for temporary files, which a start may empty")
    if kind in _OF_CONTAINER:
        return Place(Lasting.CONTAINER, f"on {kind}, which goes with its container")
    disk = "on a disk of this machine" if kind is None else f"on {kind}, a disk of this machine"
    return Place(Lasting.DISK, disk)


def _file_system(path: PurePosixPath, mounts: str) -> str | None:
    """The file system that a path is on: that of the longest mount point above it, the last of several."""
    found: tuple[int, str] | None = None
    for line in mounts.splitlines():
        parts = line.split(" ")
        if len(parts) < 3:
            continue
        point = parts[1]
        for written, read in _ESCAPES:
            point = point.replace(written, read)
        if path.is_relative_to(point) and (found is None or len(point) >= found[0]):
            found = len(point), parts[2]
    return None if found is None else found[1]
