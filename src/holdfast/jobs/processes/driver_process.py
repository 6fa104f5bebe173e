"""A driver as a child process, with all processes that it starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress

from holdfast.config.checks import without_secrets
from holdfast.jobs.loader import split_target
from holdfast.jobs.processes.protocol import DESCRIPTOR, ENVIRONMENT, Channel, ChildSpec

COMMAND = (sys.executable, "-m", "holdfast.jobs.processes.driver")


class DriverProcess:
    """A running driver and the channel to it.

    It leads a process group of its own, so that Ctrl-C reaches only the supervisor, and so that its JVM can
    be ended with it.
    """

    def __init__(self, process: subprocess.Popen[bytes], channel: Channel) -> None:
        self._process = process
        self.channel = channel
        self.pid = process.pid

    @classmethod
    def start(
        cls, spec: ChildSpec, command: tuple[str, ...] = COMMAND, *, quiet: bool = False
    ) -> DriverProcess:
        """Start a driver; `quiet` discards its standard output.

        Raises:
            OSError: No process or descriptor is available.
        """
        channel, theirs = Channel.pair()
        environment = {
            **without_secrets(os.environ),
            ENVIRONMENT: spec.as_text(),
            DESCRIPTOR: str(theirs.fileno()),
            "PYTHONPATH": _python_path(spec),
            "PYTHONUNBUFFERED": "1",
        }
        try:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                command,
                env=environment,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL if quiet else None,
                start_new_session=True,
            )
        except BaseException:
            channel.close()
            raise
        finally:
            theirs.close()
        return cls(process, channel)

    def kill(self) -> None:
        """Kill the driver and its children. Safe at any moment, since batches commit atomically."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def reap(self) -> tuple[int | None, int | None]:
        """Collect the ended process; return the signal that killed it, or its exit code."""
        code = self._process.wait()
        self.channel.close()
        return (-code, None) if code < 0 else (None, code)


def _python_path(spec: ChildSpec) -> str:
    """Return a PYTHONPATH that starts with the job file's directory."""
    folder = str(split_target(spec.target)[0].resolve().parent)
    return os.pathsep.join(part for part in (folder, os.environ.get("PYTHONPATH", "")) if part)
