"""Where a state home keeps its things, and who may run a job in it."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from holdfast.config.settings import Settings

LOGS_KEPT = 10
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
        """What belongs to one job alone."""
        return self.path / "jobs" / name

    def log(self, name: str, attempt: int) -> Path:
        """What a driver wrote to standard error."""
        return self.job(name) / f"driver-{attempt}.log"

    def start_log(self, name: str, attempt: int) -> Path:
        """The log of a driver that starts now; the oldest ones make room."""
        fresh = self.log(name, attempt)
        fresh.parent.mkdir(parents=True, exist_ok=True)
        logs = sorted(fresh.parent.glob("driver-*.log"), key=lambda each: each.stat().st_mtime)
        for old in logs[: max(0, len(logs) - LOGS_KEPT + 1)]:
            old.unlink(missing_ok=True)
        return fresh


def state_home(home: str | Path | None = None) -> Path:
    """The state home that holds here, made if need be: the one that is named, else that of the settings."""
    flags = {} if home is None else {"home": os.fspath(home)}
    return Settings.resolve(flags, os.environ, Path.cwd()).ensure_home().resolve()


class SupervisorLock:
    """Held by the one supervisor of a job while it lives; no crash leaves it behind."""

    def __init__(self, home: StateHome, job: str) -> None:
        self._path = home.job(job) / "supervisor.lock"
        self._descriptor: int | None = None

    def take(self) -> bool:
        """Take it if nobody has it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Let the next one have it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def taken(self) -> bool:
        """Whether a supervisor lives. Leaves no trace, not even in a home that does not exist."""
        if not self._path.exists():
            return False
        if self.take():
            self.release()
            return False
        return True
