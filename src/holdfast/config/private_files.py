"""Directories and files that nobody but their owner may read, whatever the umask is."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

DIRECTORY: Final = 0o700
FILE: Final = 0o600
_OTHERS: Final = 0o077
# What Holdfast keeps in a state home. Of a catalog, with millions of files maybe, the directory is enough.
_FOLDERS: Final = frozenset({"jobs", "records", "operating", "locks", "sandboxes", "java", "shipped"})
_CLOSED_FOLDERS: Final = frozenset({"savepoints"})
_FILES: Final = ("registry.db", "operations.db", "watching.db", "server-token", ".server-token", ".writable-")


def make_directory(path: Path) -> None:
    """Make a directory for the owner alone, with those above it that are not there.

    Raises:
        OSError: It cannot be made.
    """
    missing = []
    for above in (path, *path.parents):
        if above.is_dir():
            break
        missing.append(above)
    for folder in reversed(missing):
        with suppress(FileExistsError):
            folder.mkdir(DIRECTORY)
    if not path.is_dir():
        raise NotADirectoryError(f"not a directory: {path}")


def make_file(path: Path) -> None:
    """Make an empty file for the owner alone, if there is none.

    It is not opened: to close a file of SQLite gives up the locks that this process has on it elsewhere.
    """
    with suppress(OSError):
        os.mknod(path, FILE | stat.S_IFREG)


def open_file(path: Path, flags: int) -> int:
    """Open a file, made for the owner alone if it is not there; the descriptor is the caller's.

    Raises:
        OSError: It cannot be opened.
    """
    return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, FILE)


def close_to_others(home: Path) -> None:
    """Let nobody but the owner into a state home that an earlier version, or a wide umask, has left open.

    A directory that holds other things too, such as one that a person works in, stays as it is: only what
    Holdfast keeps in it is closed.
    """
    try:
        entries = list(os.scandir(home))
    except OSError:
        return
    ours = [entry for entry in entries if _is_ours(entry.name)]
    if len(ours) == len(entries):
        _close(home)
    for entry in ours:
        loose = _close(Path(entry.path))
        if loose and entry.name in _FOLDERS and entry.is_dir(follow_symlinks=False):
            for path in _below(Path(entry.path)):
                _close(path)


def _is_ours(name: str) -> bool:
    return name in _FOLDERS or name in _CLOSED_FOLDERS or name.startswith(_FILES)


def _below(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            yield Path(place, name)


def _close(path: Path) -> bool:
    """Whether others could do anything with it; they cannot any more, if it is this user's."""
    try:
        status = path.lstat()
        mode = stat.S_IMODE(status.st_mode)
        if stat.S_ISLNK(status.st_mode) or not mode & _OTHERS or status.st_uid != os.geteuid():
            return False
        path.chmod(mode & ~_OTHERS & ~(stat.S_ISUID | stat.S_ISGID))
    except OSError:  # it has gone meanwhile
        return False
    return True
