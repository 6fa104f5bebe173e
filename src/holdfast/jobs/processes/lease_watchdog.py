"""The watchdog of a driver's lease: without renewal it ends the driver, with its JVM.

A leader that was killed, frozen or cut off cannot end its driver. Another one takes over when the lease is
over, so by then the driver must be gone.
"""

from __future__ import annotations

import os
import signal
import threading
import time


class LeaseWatchdog:
    """Ends this process and its group at a moment that can be put off."""

    def __init__(self) -> None:
        self._until_s: float | None = None
        self._moved = threading.Event()

    def hold(self, until_s: float) -> None:
        """Stay alive until then, on this machine's monotonic clock; the first call begins it."""
        begins = self._until_s is None
        self._until_s = until_s
        self._moved.set()
        if begins:
            threading.Thread(target=self._watch, name="holdfast-lease-watchdog", daemon=True).start()

    def _watch(self) -> None:
        while True:
            self._moved.clear()
            left = (self._until_s or 0.0) - time.monotonic()
            if left <= 0:
                # It leads its group, so the JVM and the Python workers go too.
                os.killpg(os.getpid(), signal.SIGKILL)
            self._moved.wait(max(left, 0.0))
