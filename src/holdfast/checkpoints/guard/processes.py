"""Which processes of this machine have files of a checkpoint open, or name it on their command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.json_shapes import JsonShape

_PROC: Final = Path("/proc")
_LONGEST: Final = 120


@dataclass(frozen=True, slots=True)
class Process(JsonShape):
    """A process that has to do with a checkpoint.

    Attributes:
        pid: Its number.
        command: Its command line, cut short.
        open_file: A file below the checkpoint that it has open; None if it only names the checkpoint.
    """

    pid: int
    command: str
    open_file: str | None

    def __str__(self) -> str:
        does = "names it on its command line" if self.open_file is None else f"has {self.open_file} open"
        return f"process {self.pid} ({self.command}) {does}"


@dataclass(frozen=True, slots=True)
class ProcessScan(JsonShape):
    """The processes that have to do with a checkpoint, as far as they can be seen.

    Attributes:
        possible: Whether this system tells at all.
        processes: Those that were found.
        hidden: How many processes of other users could not be looked into.
    """

    possible: bool
    processes: tuple[Process, ...] = ()
    hidden: int = 0

    @property
    def writers(self) -> tuple[Process, ...]:
        """Those that have a file open."""
        return tuple(process for process in self.processes if process.open_file is not None)

    def lines(self) -> list[str]:
        """What a person should know of it."""
        if not self.possible:
            return ["which processes have it open cannot be told here"]
        lines = [str(process) for process in self.processes]
        if not self.processes:
            lines.append("no process that can be seen from here has it open or names it on its command line")
        if self.hidden:
            lines.append(f"{self.hidden} processes of other users could not be looked into")
        return lines


def scan_processes(place: Path) -> ProcessScan:
    """Look at every process of this machine but this one and those that have started it.

    Args:
        place: The checkpoint's directory, with links followed.
    """
    if not sys.platform.startswith("linux"):
        return ProcessScan(possible=False)
    own = set(_own())
    processes, hidden = [], 0
    for pid in sorted(int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()):
        if pid in own:
            continue
        words = _command(pid)
        if not words:
            continue  # a thread of the kernel, or gone by now
        try:
            open_file = _open_below(pid, place)
        except PermissionError:
            hidden += 1
            open_file = None
        if open_file is not None or _names(pid, words, place):
            processes.append(Process(pid, " ".join(words)[:_LONGEST], open_file))
    return ProcessScan(possible=True, processes=tuple(processes), hidden=hidden)


def _own() -> Iterator[int]:
    """This process, and whoever has started it: a shell names the checkpoint because the command does."""
    pid = os.getpid()
    while pid > 0:
        yield pid
        try:
            status = (_PROC / str(pid) / "stat").read_text()
        except OSError:
            return
        # The name stands in brackets and may hold anything, brackets included.
        pid = int(status.rpartition(")")[2].split()[1])


def _command(pid: int) -> list[str]:
    try:
        data = (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return []
    return [word for word in data.decode(errors="replace").split("\0") if word]


def _open_below(pid: int, place: Path) -> str | None:
    """A file below a directory that a process has open.

    Raises:
        PermissionError: The process is another user's.
    """
    root = f"{place}/"
    try:
        links = list((_PROC / str(pid) / "fd").iterdir())
    except FileNotFoundError:
        return None
    for link in links:
        with suppress(OSError):
            target = str(link.readlink())
            if target == str(place) or target.startswith(root):
                return target.removeprefix(root)
    return None


def _names(pid: int, words: list[str], place: Path) -> bool:
    if any(_holds(word, str(place)) for word in words):
        return True
    try:
        folder = (_PROC / str(pid) / "cwd").readlink()
    except OSError:
        return False
    # A word without a slash is a path too where it is the directory's own name.
    near = [word for word in words if "/" in word or word == place.name]
    return any(os.path.realpath(folder / word) == str(place) for word in near)


def _holds(word: str, path: str) -> bool:
    """Whether a path stands in a word, and does not only begin another one."""
    begin = word.find(path)
    while begin >= 0:
        if word[begin + len(path) : begin + len(path) + 1] in ("", "/", "'", '"', " ", ",", ";", ")", "\n"):
            return True
        begin = word.find(path, begin + 1)
    return False
