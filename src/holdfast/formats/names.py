"""The names that files give of other files: one rule for all of them.

What a file of a checkpoint says is what whoever wrote it wanted to say. A name that goes into a path is one
plain name, so that nothing outside the checkpoint is ever read, linked or written.
"""

from __future__ import annotations

from typing import Final

from holdfast.errors import Corrupt
from holdfast.formats.text import damaged

# What file systems take as one name, and as a path.
NAME_BYTES: Final = 255
PATH_BYTES: Final = 4096


def is_plain(name: str) -> bool:
    """Whether it is one name: no separators, nothing that leads elsewhere, nothing that cannot be a name."""
    if not name or name in (".", "..") or not name.isprintable():
        return False
    return "/" not in name and "\\" not in name and len(name.encode("utf-8", "replace")) <= NAME_BYTES


def plain_name(name: str, what: str, where: str) -> str:
    """The name itself.

    Args:
        name: A name out of a file.
        what: The file's role, as in "a snapshot".
        where: The file, for messages.

    Raises:
        Corrupt: It is no plain name.
    """
    if not is_plain(name):
        raise _elsewhere(name, what, where, "a plain file name")
    return name


def inner_path(path: str, what: str, where: str) -> str:
    """The path itself, of a file below the directory that it is relative to.

    Raises:
        Corrupt: It is absolute, leads elsewhere, or has a part that is no plain name.
    """
    if len(path.encode("utf-8", "replace")) > PATH_BYTES or not all(map(is_plain, path.split("/"))):
        raise _elsewhere(path, what, where, "a path below the checkpoint")
    return path


def _elsewhere(name: str, what: str, where: str, expected: str) -> Corrupt:
    return damaged(what, where, f"the name {name!r}", expected)
