"""The identity of processes and machines, which distinguishes processes that reuse a process id."""

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

# The position of the start time among the fields of /proc/PID/stat that follow the name.
_START_TIME: Final = 19

_LARGEST_PID: Final = (1 << 31) - 1


@cache
def this_machine() -> str:
    """Return the name of this machine: host, boot and process namespace.

    Two containers on one machine have different names, because their process ids are independent. A machine
    has a new name after each boot.
    """
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(_BOOT_ID.read_text().strip())
    for namespace in ("pid", "time"):  # the kernel reports start times on the clock of the namespace
        with suppress(OSError):
            parts.append(str(Path(f"/proc/self/ns/{namespace}").readlink()))
    return " ".join(parts)


def host_name(machine: str) -> str:
    """Return the host name in the name of a machine."""
    return machine.partition(" ")[0]


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """The identity of a process, which differs from that of a later process with the same id.

    Attributes:
        machine: The machine of the process, as named by `this_machine` there.
        pid: The process id on that machine.
        started: The start of the process in the kernel's ticks; None if the kernel does not report it.
    """

    machine: str
    pid: int
    started: int | None

    @classmethod
    def of(cls, pid: int, machine: str) -> ProcessIdentity:
        """Return the identity of a process of this machine."""
        return cls(machine, pid, start_time(pid))

    @classmethod
    def own(cls) -> ProcessIdentity:
        """Return the identity of this process."""
        return cls.of(os.getpid(), this_machine())

    @classmethod
    def parse(cls, value: object) -> ProcessIdentity | None:
        """Return the identity from the result of `asdict`; None for any other value."""
        if not isinstance(value, dict):
            return None
        machine, pid, started = (value.get(name) for name in ("machine", "pid", "started"))
        if not isinstance(machine, str) or not isinstance(pid, int) or not 0 < pid <= _LARGEST_PID:
            return None
        return cls(machine, pid, started) if started is None or isinstance(started, int) else None

    def has_died(self) -> bool:
        """Return whether the process ran on this machine and has ended; False if unknown."""
        if self.machine != this_machine():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:  # the process exists and belongs to a different user
            pass
        started = start_time(self.pid)
        return None not in (self.started, started) and self.started != started

    def end_group(self, machine: str) -> bool:
        """Kill the process and the process group that it leads, if it runs on this machine.

        Returns:
            True if the process was killed.
        """
        if self.machine != machine or self.started is None or start_time(self.pid) != self.started:
            return False
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
            return True
        return False


def start_time(pid: int) -> int | None:
    """Return the start of a process in the kernel's ticks; None if unknown or if the process has ended."""
    try:
        # The name is in parentheses and may contain any character; the other fields are plain.
        fields = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return int(fields[_START_TIME])
    except (OSError, IndexError, ValueError):
        return None


def myself(pid: int | None = None) -> str:
    """Return the name of this process, or of a different process on this machine, for other machines."""
    return f"{socket.gethostname()} pid {os.getpid() if pid is None else pid}"
