"""The paths of a state home, and the lock of each of its jobs."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.config.settings import Settings, make_directory
from holdfast.errors import Conflict, Invalid
from holdfast.ownership.checkpoint_lock import supervisor_lock
from holdfast.storage.file_lock import FileLock

LOGS_KEPT = 10
LOG_BYTES = 64 << 20
# Where queries are run beside themselves, below a state home.
SANDBOXES = "sandboxes"


@dataclass(frozen=True, slots=True)
class StateHome:
    """The paths of a state home. Making one touches nothing."""

    path: Path

    @property
    def registry(self) -> Path:
        """The SQLite file with all jobs."""
        return self.path / "registry.db"

    def job(self, name: str) -> Path:
        """Return the directory of one job."""
        return self.path / "jobs" / name

    def log(self, name: str, attempt: int) -> Path:
        """Return the log of a driver's standard error."""
        return self.job(name) / f"driver-{attempt}.log"

    def start_log(self, name: str, attempt: int) -> Path:
        """The log of a driver that starts now; the oldest ones make room."""
        fresh = self.log(name, attempt)
        make_directory(fresh.parent)
        logs = sorted(fresh.parent.glob("driver-*.log"), key=lambda log: log.stat().st_mtime)
        for old in logs[: max(0, len(logs) - LOGS_KEPT + 1)]:
            old.unlink(missing_ok=True)
        return fresh


def cut_log(log: Path, most: int = LOG_BYTES) -> None:
    """Keep the first lines of a log that has grown too large, and its newest quarter.

    Whoever writes to it appends: what he writes in that moment may be lost, and nothing else.

    Raises:
        OSError: It cannot be read or written.
    """
    size = log.stat().st_size
    if size <= most:
        return
    with log.open("r+b") as file:
        start = _whole_lines(file.read(most // 64))
        file.seek(-(most // 4), os.SEEK_END)
        newest = file.read()
        newest = newest[newest.find(b"\n") + 1 :]
        left_out = size - len(start) - len(newest)
        file.seek(0)
        file.write(b"%s... %d bytes were left out here ...\n%s" % (start, left_out, newest))
        file.truncate()


def _whole_lines(text: bytes) -> bytes:
    return text[: text.rfind(b"\n") + 1]


def state_home(home: str | Path | None = None) -> Path:
    """The state home that holds here, made if need be: the one that is named, else that of the settings."""
    return Settings.here(home).ensure_home().resolve()


def home_or_none(
    home: str | Path | None, unwritable: Callable[[Invalid], None], *, needed: bool = False
) -> Path | None:
    """The state home; None where nobody asked for one and the one that holds here cannot be written.

    Args:
        home: The one that is named.
        unwritable: Told why there is none.
        needed: Whether there has to be one all the same.

    Raises:
        Invalid: The one that is named or needed cannot be written.
    """
    try:
        return state_home(home)
    except Invalid as error:
        if needed or home is not None:
            raise
        unwritable(error)
        return None


def running_already(home: StateHome, job: str) -> Conflict:
    """The error for a job that another supervisor has to itself."""
    return Conflict(
        "this job is already running",
        code="HF-E4035",
        where=str(home.path),
        found=f"a live supervisor of job {job!r}",
        hint=f"see it with `holdfast status {job}`, or stop it first",
    )


def led_already(home: StateHome, job: str, leader: str, address: str) -> Conflict:
    """The error for a job that one of several supervisors leads."""
    return Conflict(
        "this job is already running",
        code="HF-E4035",
        where=str(home.path),
        found=f"a leader of job {job!r}: {leader}",
        hint=f"stand by for it with --ha {address}, or stop it first",
    )


class SupervisorLock(FileLock):
    """Held by the one supervisor of a job while it lives."""

    def __init__(self, home: StateHome, job: str) -> None:
        super().__init__(supervisor_lock(home.path, job))
