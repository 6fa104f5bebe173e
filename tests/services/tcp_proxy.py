"""Proxies on loopback that stop to pass anything on, as a network does that is cut."""

from __future__ import annotations

import socket
import threading
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Final

from loopback import free_ports

_CHUNK: Final = 65536


class _Proxy(ABC):
    """Takes connections at `port` and leads them to another port of this machine, which is at `direct`."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._ends: list[socket.socket] = []
        (self.port,) = free_ports(1)
        self.address, self.direct = f"127.0.0.1:{self.port}", f"127.0.0.1:{target}"
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End it."""
        # A thread that waits in accept is not woken by a close alone.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._close_ends()

    def _close_ends(self) -> None:
        ends, self._ends = self._ends, []
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self._ends.append(near)
            if not self._leads_on():
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                near.close()
                continue
            self._ends.append(far)
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    @abstractmethod
    def _leads_on(self) -> bool:
        """Whether a new connection is led to the other port."""

    @abstractmethod
    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        """Pass on what one end says, until it ends."""


class TcpProxy(_Proxy):
    """Passes on what comes to `port` to another port, until it is cut.

    A connection that is cut stays open and silent at both ends, and new ones are taken and left silent: so a
    lost network looks, unlike a server that is gone.
    """

    def __init__(self, target: int) -> None:
        self._open = threading.Event()
        self._open.set()
        super().__init__(target)

    def cut(self) -> None:
        """Pass nothing on from now."""
        self._open.clear()

    def mend(self) -> None:
        """Pass everything on again; what was sent meanwhile is lost with its connections."""
        self._close_ends()
        self._open.set()

    def close(self) -> None:
        """End it."""
        super().close()
        self._open.set()

    def _leads_on(self) -> bool:
        return self._open.is_set()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                if not self._open.is_set():
                    return
                sink.sendall(data)
            sink.shutdown(socket.SHUT_RDWR)


class CountingProxy(_Proxy):
    """Passes on so many bytes to a port of this machine and then ends all connections, in mid message."""

    def __init__(self, target: int) -> None:
        self._lock = threading.Lock()
        self._left: int | None = None
        self._once = False
        self.passed = 0
        self.cut = False
        super().__init__(target)

    def __enter__(self) -> CountingProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def allow(self, number: int | None, *, once: bool = False) -> None:
        """Pass on this many bytes from now, both ways together; None for all.

        Args:
            number: How many.
            once: Whether everything passes again on connections that are made after that.
        """
        with self._lock:
            self._left, self._once, self.passed, self.cut = number, once, 0, False

    def mend(self) -> None:
        """Pass on everything from now."""
        with self._lock:
            self._left = None

    def _leads_on(self) -> bool:
        return True

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                with self._lock:
                    some = data if self._left is None else data[: self._left]
                    self._left = None if self._left is None else self._left - len(some)
                    self.passed += len(some)
                sink.sendall(some)
                if len(some) < len(data):
                    self.cut = True
                    with self._lock:
                        self._left = None if self._once else self._left
                    self._close_ends()
                    return
            sink.shutdown(socket.SHUT_RDWR)


class SlowProxy(_Proxy):
    """Passes on everything to a port of this machine, late while it is slowed.

    Attributes:
        delay_s: The time that it keeps what it receives, in each direction.
    """

    def __init__(self, target: int) -> None:
        self.delay_s = 0.0
        super().__init__(target)

    def __enter__(self) -> SlowProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _leads_on(self) -> bool:
        return True

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                time.sleep(self.delay_s)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_RDWR)
