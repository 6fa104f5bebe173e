"""Which machine this is, and processes that can be told from later ones with the same number."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
# The place of the start time among the fields of /proc/PID/stat that follow the name.
_START_TIME: Final = 19


@cache
def this_machine() -> str:
    """Names the processes that this one can send signals to: the host's name, its boot, its process numbers.

    Two containers of one machine have different names here, because a process number means something else in
    each. So has a machine that was started anew.
    """
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(_BOOT_ID.read_text().strip())
    with suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return " ".join(parts)


def host_name(machine: str) -> str:
    """The name that people know a machine by."""
    return machine.partition(" ")[0]


@dataclass(frozen=True, slots=True)
class DriverIdentity:
    """A driver's process, which leads its group.

    Attributes:
        machine: Where it runs, as `this_machine` names it there.
        pid: Its number there.
        started: When it started, in the kernel's ticks; None where the kernel does not tell.
    """

    machine: str
    pid: int
    started: int | None

    @classmethod
    def of(cls, pid: int, machine: str) -> DriverIdentity:
        """That of a process of this machine."""
        return cls(machine, pid, start_time(pid))

    def end(self, machine: str) -> bool:
        """End it with its JVM and its workers, if it lives on this machine; whether it was ended."""
        if self.machine != machine or self.started is None or start_time(self.pid) != self.started:
            return False
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
            return True
        return False


def start_time(pid: int) -> int | None:
    """When a process started, in the kernel's ticks; None where the kernel does not tell, or it is gone."""
    try:
        # The name is in parentheses and may hold anything, the rest is plain.
        fields = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return int(fields[_START_TIME])
    except (OSError, IndexError, ValueError):
        return None
