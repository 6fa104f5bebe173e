"""A driver that stands by: it has Spark and the job's code in memory, and no right to anything of the job."""

from __future__ import annotations

import select
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.clock import steady_s
from holdfast.jobs.events import Say
from holdfast.jobs.loader import split_target
from holdfast.jobs.processes.driver import DriverSpec
from holdfast.jobs.processes.driver_process import DriverProcess, libraries_of, remove_scratch
from holdfast.jobs.processes.protocol import (
    LAST_MESSAGES,
    Build,
    JobDefined,
    JobFailed,
    Message,
    Refused,
    Warm,
    Warmed,
)
from holdfast.jobs.state_home import StateHome
from holdfast.quantities import rounded_duration, rounded_size

# A standby that ends by itself is started again after this time, then after twice as long, and so on.
_FIRST_DELAY_S: Final = 10.0
_LONGEST_DELAY_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class TakenStandby:
    """A standby driver that takes over.

    Attributes:
        process: The process.
        defined: The job, as the process has loaded it.
        log: The file of its standard error.
    """

    process: DriverProcess
    defined: JobDefined
    log: Path


class StandbyDriver:
    """At most one driver process that waits for the running one to end.

    Args:
        spec: The job file and how to run it.
        home: The state home.
        launch: Starts a driver.
        say: Reports events.
        now: A monotonic clock.
    """

    def __init__(
        self,
        spec: DriverSpec,
        home: StateHome,
        launch: Callable[[DriverSpec], DriverProcess],
        say: Say,
        now: Callable[[], float] = steady_s,
    ) -> None:
        self._spec = spec
        self._home = home
        self._launch = launch
        self._say = say
        self._now = now
        self._process: DriverProcess | None = None
        self._defined: JobDefined | None = None
        self._code: tuple[int, int] | None = None
        self._log: Path | None = None
        self._warmed: Warmed | None = None
        self._why: str | None = None
        self._next_s = 0.0
        self._delay_s = _FIRST_DELAY_S

    @property
    def ready(self) -> bool:
        """True if a driver is warm and its code is the one in the job file."""
        return self._warmed is not None and self._is_current

    @property
    def _is_current(self) -> bool:
        return self._code == _code_of(self._spec)

    def keep(self) -> None:
        """Handle what the standby says; start one if there is none, and another if the job file changed."""
        if self._process is None:
            if self._now() >= self._next_s:
                self._start()
        elif not self._is_current:
            self.close()
        elif not self._hear():
            self._ended()

    def take(self) -> TakenStandby | None:
        """Return the standby, which is the caller's from now on; None if there is none with this code.

        One that still warms up is returned as well: it is ahead of a driver that starts now.
        """
        if self._process is not None and not self._hear():
            self._ended()
        if self._process is None or self._defined is None or self._log is None or not self._is_current:
            return None
        self._process.channel.send(Build())
        taken = TakenStandby(self._process, self._defined, self._log)
        self._forget()
        self._delay_s = _FIRST_DELAY_S
        return taken

    def close(self) -> None:
        """End the standby, if there is one."""
        if self._process is not None:
            libraries = () if self._warmed is None else libraries_of(self._warmed.java_pid)
            self._process.kill()
            self._process.reap()
            if self._warmed is not None:
                remove_scratch((*self._warmed.scratch, *libraries))
            if self._log is not None:
                self._log.unlink(missing_ok=True)
            self._forget()

    def _start(self) -> None:
        self._code = _code_of(self._spec)
        try:
            self._process = self._launch(self._spec)
        except OSError as error:
            self._later(str(error))

    def _hear(self) -> bool:
        """Handle the messages that have arrived; False at the end of the channel."""
        process = self._process
        while process is not None and select.select([process.channel], [], [], 0)[0]:
            messages = process.channel.receive()
            if messages is None:
                return False
            for message in messages:
                self._handle(process, message)
        return True

    def _handle(self, process: DriverProcess, message: Message) -> None:
        if isinstance(message, JobDefined):
            self._defined = message
            self._log = self._home.start_standby_log(message.name, process.pid)
            process.channel.send(Warm(str(self._log)))
        elif isinstance(message, Warmed):
            self._warmed = message
            took, memory = rounded_duration(message.took_ms), rounded_size(message.memory_bytes)
            text = f"a standby driver is ready after {took} and uses {memory}"
            if message.note is not None:
                text += f"; not all queries ran: {message.note}"
            self._say(
                "standby-ready",
                text,
                pid=process.pid,
                took_ms=message.took_ms,
                memory_bytes=message.memory_bytes,
                batches=message.batches,
                note=message.note,
            )
        elif isinstance(message, Refused):
            self._why = message.error.fact
        elif isinstance(message, JobFailed):
            self._why = str(message.failure)
        elif not isinstance(message, LAST_MESSAGES):
            self._why = f"unexpected message {type(message).__name__}"

    def _ended(self) -> None:
        why = self._why or "its process ended"
        self.close()
        self._later(why)

    def _later(self, why: str) -> None:
        self._next_s = self._now() + self._delay_s
        delay = rounded_duration(int(self._delay_s * 1000))
        self._delay_s = min(self._delay_s * 2, _LONGEST_DELAY_S)
        self._say("caution", f"no standby driver: {why}; the next one starts in {delay}")

    def _forget(self) -> None:
        self._process = self._defined = self._code = self._log = self._why = self._warmed = None


def _code_of(spec: DriverSpec) -> tuple[int, int] | None:
    """Return what changes with the job file: its time and its size; None if it cannot be read."""
    try:
        facts = split_target(spec.target)[0].stat()
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_size
