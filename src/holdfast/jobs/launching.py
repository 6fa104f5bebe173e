"""Start a job's supervisor in the background, and wait until the job's queries run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from holdfast.clock import now_ms
from holdfast.errors import Failed, HoldfastError, Unavailable, error_from
from holdfast.jobs.registry.client import LOOK_S, Control, JobStatus
from holdfast.jobs.state_home import StateHome
from holdfast.model import JobState
from holdfast.ownership.process_identity import ProcessIdentity, this_machine

# A process in between, so that the supervisor is not a child of the caller.
_LAUNCHER: Final = """
import subprocess, sys
with open(sys.argv[1], "ab") as log:
    made = subprocess.Popen(
        sys.argv[2:], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
    )
print(made.pid)
"""


@dataclass(frozen=True, slots=True)
class Launch:
    """A job to start, as `holdfast run` takes it.

    Attributes:
        target: The job file, and the job in it.
        overrides: Settings and parameters of the job.
        conf: Spark settings.
        savepoints: The savepoint of each query; the name of a job's only query may be empty.
        master: The Spark master.
        standby: True to keep a second driver ready.
        fallback: The fallback for a damaged checkpoint.
        directory: The working directory; None for that of this process.
    """

    target: str
    overrides: Mapping[str, str] = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=dict)
    savepoints: Mapping[str, str] = field(default_factory=dict)
    master: str | None = None
    standby: bool = False
    fallback: str | None = None
    directory: Path | None = None

    def command(self, home: Path) -> list[str]:
        """Return the command line of the supervisor."""
        words = [sys.executable, "-m", "holdfast", "run", self.target]
        words += ["--home", str(home), "--json", "--quiet", "--no-rest"]
        words += ["--standby"] if self.standby else []
        words += ["--master", self.master] if self.master is not None else []
        words += ["--on-damage", self.fallback] if self.fallback is not None else []
        words += [f"--set={key}={value}" for key, value in self.overrides.items()]
        words += [f"--conf={key}={value}" for key, value in self.conf.items()]
        words += [
            f"--savepoint={query}={address}" if query else f"--savepoint={address}"
            for query, address in self.savepoints.items()
        ]
        return words


def launch(
    home: StateHome, job: Launch, timeout_s: float, look: Callable[[], None] = lambda: None
) -> JobStatus:
    """Start a job in the background, and wait until its queries run.

    Args:
        home: The state home.
        job: The job.
        timeout_s: The maximum time to wait; the job continues to start after that.
        look: Called repeatedly; an error ends the wait.

    Raises:
        HoldfastError: The job cannot run; the error is its supervisor's.
        Unavailable: The queries do not run in time.
    """
    log = home.path / f"supervisor-{os.urandom(6).hex()}.log"
    began_ms = now_ms()
    pid = _start(job.command(home.path), log, job.directory)
    supervisor, control = ProcessIdentity.of(pid, this_machine()), Control(home, now_ms)
    deadline = time.monotonic() + timeout_s
    while True:
        ended = supervisor.has_died()
        for found in control.jobs():
            # An earlier supervisor, before a restart of the machine, may have had the same process id.
            if found.job.supervisor_pid != pid or found.job.updated_ms < began_ms:
                continue
            if found.job.state in (JobState.RUNNING, JobState.FINISHED):
                with suppress(OSError):
                    log.rename(home.job(found.job.name) / "supervisor.log")
                return found
        error = _error_in(log)
        if error is not None:
            log.unlink()
            raise error
        look()
        if ended:
            raise Failed(
                "the supervisor ended before the job ran",
                code="HF-E1012",
                where=job.target,
                hint=f"read what it printed in {log}",
            )
        if time.monotonic() > deadline:
            raise Unavailable(
                f"the job's queries do not run after {timeout_s:.0f} s",
                code="HF-E5072",
                where=job.target,
                hint=f"look at the job with `holdfast status`; its supervisor {pid} prints to {log}",
            )
        time.sleep(LOOK_S)


def _start(command: Sequence[str], log: Path, directory: Path | None) -> int:
    """Start a process that outlives this one, and return its id."""
    launcher = [sys.executable, "-W", "ignore", "-c", _LAUNCHER, str(log)]
    made = subprocess.run(  # noqa: S603 - our own command
        [*launcher, *command], capture_output=True, text=True, check=True, cwd=directory
    )
    return int(made.stdout)


def _error_in(log: Path) -> HoldfastError | None:
    """Return the error that a supervisor has printed, or None."""
    for line in reversed(log.read_text("utf-8", "replace").splitlines()):
        with suppress(ValueError):
            values = json.loads(line)
            if isinstance(values, dict) and {"error", "kind"} <= set(values):
                return error_from(values)
    return None
