"""Limits on the number and duration of a server's connections.

Each connection needs a file descriptor. At the limit, a new connection replaces an existing one: the oldest
idle one, or if none is idle, one whose client is slow to send a request or to read the answer. If all
connections are processing requests, the new one is closed.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from holdfast.server.access.local_peer import with_peer

LARGEST_HEAD: Final = 64 * 1024
_MOST: Final = 256
_FEWEST: Final = 8
# The share of descriptors for connections; files, children and databases use the others.
_SHARE: Final = 4
_MOST_DESCRIPTORS: Final = 1 << 16
_AT_ONCE: Final = 64
_SWEEP_S: Final = 0.5
_PAUSE_S: Final = 0.5
_USED_UP: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits on the number and duration of connections.

    Attributes:
        connections: The maximum number of connections.
        head_s: The time limit for the TLS handshake and for a request's line and headers, in seconds.
        answer_s: The time limit for a client to read an answer that has begun, in seconds.
    """

    connections: int = _MOST
    head_s: float = 10.0
    answer_s: float = 120.0


def bounds() -> Bounds:
    """Return the limits of this process, after raising its limit of open files."""
    return Bounds(connections=max(_FEWEST, min(_MOST, _descriptors() // _SHARE)))


def _descriptors() -> int:
    """Raise the soft limit of open descriptors, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return _MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        return most
    return soft


class Connection(H11Protocol):
    """An HTTP connection that records the start of its current wait.

    Attributes:
        head_since: The start of the wait for the head of a request; None while a request is processed, and
            between two requests, where uvicorn's own timeout applies.
        answer_since: The start of the wait for the client to read an answer; None without one.
    """

    def __init__(self, lost: Callable[[Connection], None], **given: Any) -> None:
        super().__init__(**given)
        self._lost = lost
        self.head_since: float | None = self.loop.time()
        self.answer_since: float | None = None

    @property
    def answering(self) -> bool:
        """Return whether a request is being processed or still arriving."""
        cycle = cast("RequestResponseCycle | None", self.cycle)  # None before the first request
        return cycle is not None and not cycle.response_complete

    @property
    def dispensable(self) -> int | None:
        """The rank for closing it in favour of a new one, lowest first; None if it must stay open."""
        if self.answer_since is not None:
            return 2  # the client does not read its answer
        if not self.answering:
            return 0
        return 1 if self.cycle.more_body else None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Attach the peer to the requests of a new connection."""
        super().connection_made(transport)
        self.app_state = with_peer(self.app_state, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the end of the connection."""
        super().connection_lost(exc)
        self._lost(self)

    def data_received(self, data: bytes) -> None:
        """Handle received data."""
        if not self.answering and self.head_since is None:
            self.head_since = self.loop.time()
        super().data_received(data)
        self._note_request()

    def on_response_complete(self) -> None:
        """Handle the end of an answer; the next request may have arrived already."""
        self.head_since = None
        super().on_response_complete()
        self._note_request()

    def send_400_response(self, msg: str) -> None:
        """Refuse invalid HTTP, unless an answer has already begun."""
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:
            self.transport.abort()

    def late(self, now: float, within: Bounds) -> bool:
        """Return whether the connection has exceeded a time limit."""
        if self.head_since is not None and now - self.head_since > within.head_s:
            return True
        transport = cast(
            "asyncio.Transport | None", self.transport
        )  # None before the TLS handshake is complete
        if transport is None:
            return False
        if transport.get_write_buffer_size() == 0:
            self.answer_since = None
            if transport.is_closing() and self.head_since is None:
                self.head_since = now  # the peer must agree to the end of TLS
        elif self.answer_since is None:
            self.answer_since = now
        return self.answer_since is not None and now - self.answer_since > within.answer_s

    def _note_request(self) -> None:
        if self.answering:
            self.head_since = None


@dataclass(slots=True)
class _Place:
    """The slot of a connection, from its acceptance to its end."""

    socket: socket.socket
    connection: Connection
    opening: asyncio.Task[None] | None = None

    def give_up(self) -> None:
        if self.opening is not None and not self.opening.done():
            self.opening.cancel()
        else:
            self.connection.transport.abort()


class Acceptor:
    """An acceptor of connections that closes slow ones; uvicorn uses it as its server.

    Args:
        listening: The listening socket.
        make: The function that creates the HTTP protocol of a connection; its argument is the callback for a
            lost connection.
        tls: The TLS context; None without TLS.
        within: The limits.
    """

    def __init__(
        self,
        listening: socket.socket,
        make: Callable[[Callable[[Connection], None]], Connection],
        tls: ssl.SSLContext | None,
        within: Bounds,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listening = listening
        self._make = make
        self._tls = tls
        self._within = within
        self._places: dict[Connection, _Place] = {}
        self._closed = False
        listening.setblocking(False)
        self._listen()
        self._sweeper = self._loop.create_task(self._sweep())

    def close(self) -> None:
        """Stop accepting connections."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._listening)
        self._sweeper.cancel()
        for place in list(self._places.values()):
            if place.opening is not None and not place.opening.done():
                place.give_up()

    async def wait_closed(self) -> None:
        """Wait until `close` has finished."""
        with suppress(asyncio.CancelledError):
            await self._sweeper

    def _listen(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):  # earlier requests are answered in between
            try:
                accepted, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _USED_UP:
                    return
                # Other parts of the process have used up the descriptors: close some connections and retry.
                self._make_room()
                self._loop.remove_reader(self._listening)
                self._loop.call_later(_PAUSE_S, self._listen)
                return
            if len(self._places) >= self._within.connections and not self._make_room():
                accepted.close()
                continue
            self._admit(accepted)

    def _admit(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        place = _Place(accepted, self._make(self._forget))
        self._places[place.connection] = place
        place.opening = self._loop.create_task(self._open(place))
        place.opening.add_done_callback(lambda done: self._finish_opening(place, done))

    async def _open(self, place: _Place) -> None:
        await self._loop.connect_accepted_socket(
            lambda: place.connection,
            place.socket,
            ssl=self._tls,
            ssl_handshake_timeout=None if self._tls is None else self._within.head_s,
        )

    def _finish_opening(self, place: _Place, opening: asyncio.Task[None]) -> None:
        """Handle the end of the opening of a connection, successful or not."""
        if opening.cancelled() or opening.exception() is not None:
            self._forget(place.connection)
            place.socket.close()

    def _forget(self, connection: Connection) -> None:
        self._places.pop(connection, None)

    def _make_room(self) -> bool:
        """Close the most dispensable connection; return False if all are active."""
        ranked = (
            (rank, place)
            for connection, place in self._places.items()  # the oldest of several equal ones comes first
            if (rank := connection.dispensable) is not None
        )
        _, chosen = min(ranked, key=itemgetter(0), default=(0, None))
        if chosen is None:
            return False
        self._forget(chosen.connection)
        chosen.give_up()
        return True

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            now = self._loop.time()
            for place in list(self._places.values()):
                if place.connection.late(now, self._within):
                    place.give_up()
