"""The evidence that a checkpoint is in use: processes, locks and the times of its batches.

A checkpoint does not record whether a plain query runs on it, so the user decides from this evidence.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median_high
from typing import Final

from holdfast.checkpoints.logs import Logs, written_ms
from holdfast.config.checks import local_path
from holdfast.errors import HoldfastError
from holdfast.json_shapes import JsonShape, json_as
from holdfast.layout import Log
from holdfast.ownership.checkpoint_lease import LeaseNote
from holdfast.quantities import rounded_duration
from holdfast.storage.port import Storage

_PROC: Final = Path("/proc")
_LONGEST: Final = 120


@dataclass(frozen=True, slots=True)
class Process(JsonShape):
    """A process that uses or names a checkpoint.

    Attributes:
        pid: The process id.
        command: The command line, truncated.
        open_file: A file of the checkpoint that the process has open; None if its command line only names the
            checkpoint.
    """

    pid: int
    command: str
    open_file: str | None

    def __str__(self) -> str:
        does = "names it on its command line" if self.open_file is None else f"has {self.open_file} open"
        return f"process {self.pid} ({self.command}) {does}"


@dataclass(frozen=True, slots=True)
class ProcessScan(JsonShape):
    """The visible processes that use or name a checkpoint.

    Attributes:
        possible: Whether this system reports the open files of processes.
        processes: The processes that use or name the checkpoint.
        hidden: The number of processes of other users, whose files are not visible.
    """

    possible: bool
    processes: tuple[Process, ...] = ()
    hidden: int = 0

    @property
    def writers(self) -> tuple[Process, ...]:
        """The processes that have a file open for writing."""
        return tuple(process for process in self.processes if process.open_file is not None)

    def lines(self) -> list[str]:
        """Return the lines of text that describe the scan."""
        if not self.possible:
            return ["open files of processes cannot be listed on this system"]
        lines = [str(process) for process in self.processes]
        if not self.processes:
            lines.append("no visible process has it open or names it on its command line")
        if self.hidden:
            lines.append(f"{self.hidden} processes of other users could not be inspected")
        return lines


def scan_processes(place: Path) -> ProcessScan:
    """Scan the processes of this machine, except this process and its ancestors.

    Args:
        place: The checkpoint's directory, with links resolved.
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
            continue  # a thread of the kernel, or an ended process
        try:
            open_file = _open_below(pid, place)
        except PermissionError:
            hidden += 1
            open_file = None
        if open_file is not None or _names(pid, words, place):
            processes.append(Process(pid, " ".join(words)[:_LONGEST], open_file))
    return ProcessScan(possible=True, processes=tuple(processes), hidden=hidden)


def _own() -> Iterator[int]:
    """Yield the ids of this process and its ancestors, whose command lines may name the checkpoint."""
    pid = os.getpid()
    while pid > 0:
        yield pid
        try:
            status = (_PROC / str(pid) / "stat").read_text()
        except OSError:
            return
        # The name is in parentheses and may contain any character.
        pid = int(status.rpartition(")")[2].split()[1])


def _command(pid: int) -> list[str]:
    try:
        data = (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return []
    return [word for word in data.decode(errors="replace").split("\0") if word]


def _open_below(pid: int, place: Path) -> str | None:
    """Return a file below a directory that a process has open; None if there is none.

    Raises:
        PermissionError: The process belongs to a different user.
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
    # A word without a slash is a path only if it is the directory's own name.
    near = [word for word in words if "/" in word or word == place.name]
    return any(os.path.realpath(folder / word) == str(place) for word in near)


def _holds(word: str, path: str) -> bool:
    """Return whether an argument contains a path as a whole, not as the start of a longer path."""
    begin = word.find(path)
    while begin >= 0:
        if word[begin + len(path) : begin + len(path) + 1] in ("", "/", "'", '"', " ", ",", ";", ")", "\n"):
            return True
        begin = word.find(path, begin + 1)
    return False


# The number of newest batches from which the usual interval is computed.
_BATCHES: Final = 20


@dataclass(frozen=True, slots=True)
class CheckpointUsage(JsonShape):
    """The evidence that a query may be using a checkpoint.

    Attributes:
        uri: The address of the checkpoint.
        planned: The newest batch that was planned.
        planned_age_ms: The time since that batch was planned.
        committed: The newest batch that was committed.
        committed_age_ms: The time since that batch was committed.
        interval_ms: The usual time between two batches; None with fewer than two.
        scan: The processes of this machine that use or name the checkpoint.
        lease: The lease next to the checkpoint; None if it is free or was not read.
    """

    uri: str = field(metadata=json_as("checkpoint"))
    planned: int | None = field(metadata=json_as("planned_batch"))
    planned_age_ms: int | None
    committed: int | None = field(metadata=json_as("committed_batch"))
    committed_age_ms: int | None
    interval_ms: int | None
    scan: ProcessScan = field(metadata=json_as("processes"))
    lease: LeaseNote | None = None

    @property
    def silent_ms(self) -> int | None:
        """The time since a batch was planned or committed."""
        ages = [age for age in (self.planned_age_ms, self.committed_age_ms) if age is not None]
        return min(ages, default=None)

    def lines(self) -> list[str]:
        """Return the evidence as text, with one fact per line."""
        lines = [
            _line("newest planned batch", self.planned, self.planned_age_ms),
            _line("newest committed batch", self.committed, self.committed_age_ms),
        ]
        if self.planned is not None and self.planned != self.committed:
            lines.append(f"batch {self.planned} is planned but not committed")
        if self.interval_ms is not None:
            lines.append(f"usual interval between batches: {rounded_duration(self.interval_ms)}")
        if self.lease is not None:
            lines.append(str(self.lease))
        return [*lines, *self.scan.lines()]


def usage_of(checkpoint: Storage, now_ms: int) -> CheckpointUsage:
    """Collect the evidence that a checkpoint is in use. Changes nothing.

    Cost: lists two directories, reads the offsets of some batches, and on Linux scans all processes.
    """
    place = local_path(checkpoint.uri)
    logs = Logs(checkpoint)
    planned = max(logs.offered, default=None)
    planned_ms = _planned_times(logs)

    def age_ms(log: Log, batch_id: int | None, *noted_ms: int) -> int | None:
        file_ms = None if batch_id is None else written_ms(checkpoint, log, batch_id)
        times = [*noted_ms, *([] if file_ms is None else [file_ms])]
        return max(0, now_ms - max(times)) if times else None

    return CheckpointUsage(
        uri=checkpoint.uri,
        planned=planned,
        planned_age_ms=age_ms(Log.OFFSETS, planned, *planned_ms[-1:]),
        committed=logs.newest,
        committed_age_ms=age_ms(Log.COMMITS, logs.newest),
        interval_ms=_interval(planned_ms),
        scan=ProcessScan(possible=False) if place is None else scan_processes(place),
    )


def _planned_times(logs: Logs) -> list[int]:
    """Return the times when the newest batches were planned, from the offset log; skip damaged files."""
    times = []
    for batch_id in logs.offered[-_BATCHES:]:
        try:
            offsets = logs.offsets(batch_id)
        except HoldfastError:
            continue
        if offsets is not None and offsets.timestamp_ms > 0:
            times.append(offsets.timestamp_ms)
    return times


def _interval(times: list[int]) -> int | None:
    gaps = [later - earlier for earlier, later in pairwise(times) if later > earlier]
    return median_high(gaps) if gaps else None


def _line(what: str, batch_id: int | None, age_ms: int | None) -> str:
    if batch_id is None:
        return f"{what}: none"
    return f"{what}: {batch_id}" + ("" if age_ms is None else f", {rounded_duration(age_ms)} ago")
