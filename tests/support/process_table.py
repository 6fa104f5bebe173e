"""The processes of this machine, as Linux lists them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Process:
    """A line of the operating system's table of processes."""

    pid: int
    group: int
    state: str
    name: str


def processes() -> Iterator[Process]:
    """Every process that has not ended; one that waits to be collected has."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            # The name is in parentheses and may hold anything, the rest is plain.
            head, _, rest = (entry / "stat").read_text().rpartition(")")
            state, _, group = rest.split()[:3]
            if state not in "ZX":
                yield Process(int(entry.name), int(group), state, head.partition("(")[2])


def in_group(group: int) -> list[Process]:
    """The processes of a group."""
    return [each for each in processes() if each.group == group]


def working_in(folder: Path) -> list[int]:
    """The processes whose working directory is below a folder."""
    found = []
    for each in processes():
        with suppress(OSError):
            if (Path("/proc") / str(each.pid) / "cwd").readlink().is_relative_to(folder):
                found.append(each.pid)
    return found


def runs(pid: int) -> bool:
    """Whether the process has not ended."""
    return any(each.pid == pid for each in processes())
