"""What people ask of a supervisor, by signals and by requests in the registry, and waiting until they do."""

from __future__ import annotations

import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

# How often somebody who waits looks whether anything was asked for.
LOOK_S = 0.2


class StopRequests:
    """What one supervisor is asked, over its life. A signal is seen at once, wherever it waits.

    Attributes:
        stops: How often the job, or this supervisor, was told to stop; the second time means at once.
        cancel: Whether the job is to be ended at once.
        signalled: Whether it was a signal that told it to stop.
        rescale: Whether its checkpoints are to be rescaled between two drivers.
    """

    def __init__(self) -> None:
        self.stops = 0
        self.cancel = False
        self.signalled = False
        self.rescale = False
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Take SIGTERM and SIGINT as requests to stop."""
        former = {
            number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)
            self._wake_read.close()
            self._wake_write.close()

    def fileno(self) -> int:
        """For a selector: it is readable after a signal."""
        return self._wake_read.fileno()

    def seen(self) -> None:
        """Be silent until the next signal."""
        with suppress(BlockingIOError):
            self._wake_read.recv(64)

    @property
    def any(self) -> bool:
        """Whether the job is to end."""
        return bool(self.stops) or self.cancel

    @property
    def at_once(self) -> bool:
        """Whether the job is not to finish its batch first."""
        return self.cancel or self.stops > 1

    def wait(self, seconds: float, look: Callable[[], None]) -> bool:
        """Wait, unless the job is to end; False if so. `look` is called again and again meanwhile."""
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self, selectors.EVENT_READ)
            while (left := deadline - time.monotonic()) > 0:
                selector.select(min(left, LOOK_S))
                self.seen()
                look()
                if self.any:
                    return False
        return True

    def pause(self, seconds: float) -> bool:
        """Wait, whatever was asked for before, unless another signal comes; False if so."""
        before = self.stops
        with selectors.DefaultSelector() as selector:
            selector.register(self, selectors.EVENT_READ)
            self.seen()
            selector.select(seconds)
        return self.stops == before

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.stops += 1
        self.signalled = True
        with suppress(OSError):
            self._wake_write.send(b"!")
