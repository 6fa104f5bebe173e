"""A proxy on loopback that can stop to pass anything on, as a network does that is cut."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Final

from loopback import free_ports

_CHUNK: Final = 65536


class TcpProxy:
    """Passes on what comes to `port` to another port, until it is cut.

    A connection that is cut stays open and silent at both ends, and new ones are taken and left silent: so a
    lost network looks, unlike a server that is gone.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._open = threading.Event()
        self._open.set()
        self._closed = False
        self._ends: list[socket.socket] = []
        (self.port,) = free_ports(1)
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Pass nothing on from now."""
        self._open.clear()

    def mend(self) -> None:
        """Pass everything on again; what was sent meanwhile is lost with its connections."""
        self._close_ends()
        self._open.set()

    def close(self) -> None:
        """End it."""
        self._closed = True
        # A thread that waits in accept is not woken by a close alone.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._close_ends()
        self._open.set()

    def _close_ends(self) -> None:
        ends, self._ends = self._ends, []
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self._ends.append(near)
            if not self._open.is_set():
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                near.close()
                continue
            self._ends.append(far)
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                if not self._open.is_set():
                    return
                sink.sendall(data)
            sink.shutdown(socket.SHUT_RDWR)
