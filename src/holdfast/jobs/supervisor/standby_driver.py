"""A driver that stands by: it has Spark and the job's code in memory, and no right to anything of the job."""

from __future__ import annotations

import select
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.clock import steady_s
from holdfast.errors import Failed, HoldfastError, Unavailable
from holdfast.jobs.events import Say
from holdfast.jobs.loader import split_target
from holdfast.jobs.processes.driver import DriverSpec
from holdfast.jobs.processes.driver_process import DriverProcess, libraries_of, remove_scratch
from holdfast.jobs.processes.protocol import (
    LAST_MESSAGES,
    Build,
    Built,
    JobDefined,
    JobFailed,
    Message,
    Refused,
    Warm,
    Warmed,
    not_for,
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
        record: Records the job, process and memory of a standby that is ready; without memory, its end.
        now: A monotonic clock.

    Attributes:
        error: The error of the last standby, if it ended by itself or could not build the queries.
    """

    def __init__(
        self,
        spec: DriverSpec,
        home: StateHome,
        launch: Callable[[DriverSpec], DriverProcess],
        say: Say,
        record: Callable[[str, int, int | None], None],
        now: Callable[[], float] = steady_s,
    ) -> None:
        self._spec = spec
        self._home = home
        self._launch = launch
        self._say = say
        self._record = record
        self._now = now
        self._process: DriverProcess | None = None
        self._defined: JobDefined | None = None
        self._code: tuple[int, int] | None = None
        self._log: Path | None = None
        self._warmed: Warmed | None = None
        self._built: Built | None = None
        self._told_to_build = False
        self._next_s = 0.0
        self._delay_s = _FIRST_DELAY_S
        self.error: HoldfastError | None = None

    @property
    def ready(self) -> bool:
        """True if a driver is warm and its code is the one in the job file."""
        return self._warmed is not None and self._is_current

    @property
    def defined(self) -> JobDefined | None:
        """The job as the standby has loaded it; None before that."""
        return self._defined

    @property
    def built(self) -> bool:
        """True if a driver with the code in the job file has built the queries, as told by `build`."""
        return self._built is not None and self._built.failed is None and self._is_current

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

    def renew(self) -> None:
        """Replace the standby with the next `keep`: modules that the job file imports may have changed."""
        self.close()
        self.error, self._next_s, self._delay_s = None, 0.0, _FIRST_DELAY_S

    def build(self) -> None:
        """Let a warm standby call the job's function before it takes over; `built` follows."""
        if self._process is not None and not self._told_to_build:
            self._told_to_build = True
            self._process.channel.send(Build())

    def take(self) -> TakenStandby | None:
        """Return the standby, which is the caller's from now on; None if there is none with this code.

        One that still warms up is returned as well: it is ahead of a driver that starts now.
        """
        if self._process is not None and not self._hear():
            self._ended()
        if self._process is None or self._defined is None or self._log is None or not self._is_current:
            return None
        self.build()
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
            self._ended(
                Unavailable(
                    str(error), code="HF-E5071", hint="free processes and descriptors on this machine"
                )
            )

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
            if self._defined is not None:
                self._record(self._defined.name, process.pid, message.memory_bytes)
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
        elif isinstance(message, Built):
            self._built = message
            if message.failed is not None:
                self.error = Failed(
                    "the job's function failed in the new driver",
                    code="HF-E1009",
                    where=self._spec.target,
                    found=message.failed,
                    hint="mend the job file, and try it with `holdfast check`",
                )
        elif isinstance(message, Refused):
            self.error = message.error
        elif isinstance(message, JobFailed):
            self.error = Failed(
                f"the standby driver failed: {message.failure}",
                code="HF-E1010",
                where=str(self._log or self._spec.target),
            )
        elif not isinstance(message, LAST_MESSAGES):
            self.error = not_for("a supervisor", message)

    def _ended(self, error: HoldfastError | None = None) -> None:
        self.error = error = (
            error
            or self.error
            or Failed(
                "the process of the standby driver ended",
                code="HF-E1011",
            )
        )
        self.close()
        self._next_s = self._now() + self._delay_s
        delay = rounded_duration(int(self._delay_s * 1000))
        self._delay_s = min(self._delay_s * 2, _LONGEST_DELAY_S)
        self._say("caution", f"no standby driver: {error.fact}; the next one starts in {delay}")

    def _forget(self) -> None:
        if self._process is not None and self._defined is not None and self._warmed is not None:
            self._record(self._defined.name, self._process.pid, None)
        self._process = self._defined = self._code = self._log = self._warmed = self._built = None
        self._told_to_build = False


def _code_of(spec: DriverSpec) -> tuple[int, int] | None:
    """Return what changes with the job file: its time and its size; None if it cannot be read."""
    try:
        facts = split_target(spec.target)[0].stat()
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_size
