"""The watchdog of a lease, which kills all processes that may write if the lease is not renewed in time.

These include the JVM. A leader that was killed, frozen or disconnected cannot end its driver. A different
leader takes over when the lease is over, so the driver must have ended by then. The watchdog is a separate
process, because a frozen Python process would also freeze its threads, while its JVM continues with batches
that need no Python.

The watchdog itself may be killed or stopped, for example by the kernel when memory runs out. A thread of the
process that holds the lease detects this and replaces the watchdog at once.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib.resources import files
from typing import Final

from holdfast.errors import Unavailable
from holdfast.ownership.process_identity import start_time

_PROGRAM: Final = "watchdog_process.py"


class LeaseWatchdog:
    """A watchdog that kills processes at a time that can be extended.

    Args:
        processes: The process ids; by default all processes of the group that this process leads.
    """

    def __init__(self, processes: Sequence[int] = ()) -> None:
        self._processes = tuple(processes)
        self._watching: subprocess.Popen[bytes] | None = None
        self._until_s = 0.0
        self._released = False
        self._lock = threading.Lock()

    def hold(self, until_s: float) -> None:
        """Extend the time to `until_s` on the clock `clock.steady_s`; the first call starts the watchdog.

        Raises:
            Unavailable: The process of the watchdog cannot be started.
        """
        with self._lock:
            if self._released:
                return  # a concurrent renewal is late
            self._until_s = until_s
            if self._watching is None:
                self._begin()
            else:
                self._send()

    def release(self) -> None:
        """Stop the watchdog for good."""
        with self._lock:
            self._released = True
            watching, self._watching = self._watching, None
        if watching is not None:
            _end(watching)

    def _begin(self) -> None:
        self._watching = watching = self._started()
        self._send()
        threading.Thread(
            target=self._replace_if_lost, args=(watching,), name="holdfast-watchdog", daemon=True
        ).start()

    def _replace_if_lost(self, watching: subprocess.Popen[bytes]) -> None:
        """Wait until the watchdog is killed or stopped, and start a new one."""
        ended = None
        with suppress(ChildProcessError):  # `release` has waited for it
            ended = os.waitid(os.P_PID, watching.pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
        exited = ended is None or ended.si_code == os.CLD_EXITED
        with self._lock:
            if self._watching is not watching or (ended is not None and exited and not ended.si_status):
                return  # released, or finished
            self._watching = None
            _end(watching)
            if not exited:  # if it fails by itself, the next renewal restarts it, to avoid a loop
                with suppress(Unavailable):  # the next renewal retries, and its caller gets the error
                    self._begin()

    def _started(self) -> subprocess.Popen[bytes]:
        ended = [f"{process}:{start_time(process) or ''}" for process in self._processes]
        try:
            # As source text, because the package may be in a zip file, as Spark ships it.
            program = files(__package__).joinpath(_PROGRAM).read_text()
            return subprocess.Popen(  # noqa: S603 - this interpreter, and our own text
                [sys.executable, "-I", "-S", "-c", program, *(ended or [f"group:{os.getpid()}"])],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                # A member of the group that it ends, so that the number of the group is not reused.
                start_new_session=bool(ended),
            )
        except OSError as error:
            raise Unavailable(
                "the watchdog of the lease cannot be started",
                code="HF-E5035",
                where=sys.executable,
                found=error.strerror,
                hint="allow this user to start processes: the watchdog ends a process that lost its lease",
            ) from error

    def _send(self) -> None:
        watching = self._watching
        if watching is not None and watching.stdin is not None:
            with suppress(OSError):  # it has finished, or was killed and will be replaced
                watching.stdin.write(f"{self._until_s:.6f}\n".encode())
                watching.stdin.flush()


def _end(watching: subprocess.Popen[bytes]) -> None:
    """End a watchdog, including one that was stopped by a signal."""
    watching.kill()
    with suppress(OSError):  # unread data in the pipe is discarded
        watching.communicate()
