"""The paths of a state home, and the lock of each of its jobs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.config.settings import Settings, make_directory
from holdfast.errors import Conflict, Invalid
from holdfast.formats.text import decoded, json_object
from holdfast.ownership.checkpoint_lock import supervisor_lock
from holdfast.storage.file_lock import FileLock
from holdfast.storage.local import LocalStorage

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

LOGS_KEPT = 10
LOG_BYTES = 64 << 20
# Where queries are run beside themselves, below a state home.
SANDBOXES = "sandboxes"


@dataclass(frozen=True, slots=True)
class StateHome:
    """The paths of a state home; creating one does not touch the disk."""

    path: Path

    @property
    def registry(self) -> Path:
        """The SQLite file with all jobs."""
        return self.path / "registry.db"

    def job(self, name: str) -> Path:
        """Return the directory of one job."""
        return self.path / "jobs" / name

    def read_json(self, name: str, file: str, what: str) -> dict[str, Any] | None:
        """Return the object in a JSON file of a job; None if the file does not exist.

        Args:
            name: The job's name.
            file: The name of the file.
            what: The content of the file, for errors.

        Raises:
            Corrupt: The file is not a JSON object.
            Unavailable: The disk does not answer.
        """
        storage, where = LocalStorage(self.job(name)), str(self.job(name) / file)
        if storage.size(file) is None:
            return None
        return json_object(decoded(storage.read(file), what, where), what, where)

    def write_json(self, name: str, file: str, record: DataclassInstance) -> None:
        """Replace a JSON file of a job with a record; after a kill the old or the new one is there.

        Raises:
            HoldfastError: The file cannot be written.
        """
        LocalStorage(self.job(name)).write(file, json.dumps(asdict(record)).encode(), replace=True)

    def log(self, name: str, attempt: int) -> Path:
        """Return the log of a driver's standard error."""
        return self.job(name) / f"driver-{attempt}.log"

    def start_log(self, name: str, attempt: int) -> Path:
        """Create the log of a new driver and delete the oldest ones."""
        fresh = self.log(name, attempt)
        make_directory(fresh.parent)
        logs = sorted(fresh.parent.glob("driver-*.log"), key=lambda log: log.stat().st_mtime)
        for old in logs[: max(0, len(logs) - LOGS_KEPT + 1)]:
            old.unlink(missing_ok=True)
        return fresh

    def start_standby_log(self, name: str, pid: int) -> Path:
        """Return the path of a standby driver's log; it is renamed when the driver takes over."""
        fresh = self.job(name) / f"driver-standby-{pid}.log"
        make_directory(fresh.parent)
        return fresh


def cut_log(log: Path, most: int = LOG_BYTES) -> None:
    """Keep the first lines of a log that has grown too large, and its newest quarter.

    Lines that the process appends at this moment may be lost.

    Raises:
        OSError: The log cannot be read or written.
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
    """Return the given state home, else that of the settings; created if needed."""
    return Settings.here(home).ensure_home().resolve()


def home_or_none(
    home: str | Path | None, unwritable: Callable[[Invalid], None], *, needed: bool = False
) -> Path | None:
    """Return the state home; None if the default one cannot be written and is not needed.

    Args:
        home: The given state home; None for the default.
        unwritable: Called with the error if there is none.
        needed: True if the caller cannot do without.

    Raises:
        Invalid: A given or needed state home cannot be written.
    """
    try:
        return state_home(home)
    except Invalid as error:
        if needed or home is not None:
            raise
        unwritable(error)
        return None


def running_already(home: StateHome, job: str) -> Conflict:
    """Return the error for a job that a different supervisor runs."""
    return Conflict(
        "the job is already running",
        code="HF-E4035",
        where=str(home.path),
        found=f"a live supervisor of job {job!r}",
        hint=f"see `holdfast status {job}`, or stop the job first",
    )


def led_already(home: StateHome, job: str, leader: str, address: str) -> Conflict:
    """Return the error for a job that one of several supervisors leads."""
    return Conflict(
        "the job is already running",
        code="HF-E4035",
        where=str(home.path),
        found=f"a leader of job {job!r}: {leader}",
        hint=f"stand by with --ha {address}, or stop the job first",
    )


class QueryLock(FileLock):
    """The lock of a query under `hf.watch` or `hf.guard`, held by its process while it records the query."""

    def __init__(self, home: StateHome, job: str) -> None:
        super().__init__(home.job(job) / "query.lock")


class SupervisorLock(FileLock):
    """The lock that a job's supervisor holds while it lives."""

    def __init__(self, home: StateHome, job: str) -> None:
        super().__init__(supervisor_lock(home.path, job))
