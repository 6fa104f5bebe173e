"""The watchdog of a lease: without renewal it ends the processes that may write, the JVM among them.

A leader that was killed, frozen or cut off cannot end its driver. Another one takes over when the lease is
over, so by then the driver must be gone. The watchdog is a process of its own: a frozen Python process would
freeze a thread of its own too, while its JVM continues with batches that need no Python.

Something may kill or stop the watchdog too, such as the kernel when memory runs out. A thread of the process
that holds the lease waits for that, and replaces the watchdog at once.
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
    """Ends processes at a time that can be extended.

    Args:
        processes: Their process ids; by default all of this process's group, which it leads.
    """

    def __init__(self, processes: Sequence[int] = ()) -> None:
        self._processes = tuple(processes)
        self._watching: subprocess.Popen[bytes] | None = None
        self._until_s = 0.0
        self._released = False
        self._lock = threading.Lock()

    def hold(self, until_s: float) -> None:
        """Extend the time until then, by `clock.steady_s`; the first call starts the watchdog.

        Raises:
            Unavailable: No process can be started.
        """
        with self._lock:
            if self._released:
                return  # a renewal that was under way comes late
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
        """Start a new watchdog once this one was killed or stopped."""
        ended = None
        with suppress(ChildProcessError):  # `release` has waited for it
            ended = os.waitid(os.P_PID, watching.pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
        exited = ended is None or ended.si_code == os.CLD_EXITED
        with self._lock:
            if self._watching is not watching or (ended is not None and exited and not ended.si_status):
                return  # released, or its work is done
            self._watching = None
            _end(watching)
            if not exited:  # one that fails by itself is started again by the next renewal, not in a loop
                with suppress(Unavailable):  # the next renewal tries again, and its caller gets the error
                    self._begin()

    def _started(self) -> subprocess.Popen[bytes]:
        ended = [f"{process}:{start_time(process) or ''}" for process in self._processes]
        try:
            # As text: the package may be in a zip, as Spark ships it.
            program = files(__package__).joinpath(_PROGRAM).read_text()
            return subprocess.Popen(  # noqa: S603 - this interpreter, and our own text
                [sys.executable, "-I", "-S", "-c", program, *(ended or [f"group:{os.getpid()}"])],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                # Within the group, if that is what it ends: so the group's number stays its own.
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
            with suppress(OSError):  # it has done its work, or was killed and is about to be replaced
                watching.stdin.write(f"{self._until_s:.6f}\n".encode())
                watching.stdin.flush()


def _end(watching: subprocess.Popen[bytes]) -> None:
    """End a watchdog, also one that was stopped."""
    watching.kill()
    with suppress(OSError):  # what was not read from the pipe is lost with it
        watching.communicate()
