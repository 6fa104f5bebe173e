"""Connections as a server lets them in: bounded in number and in time, whatever a client sends or does not.

A connection that asks for nothing costs a descriptor. When all places are taken, the one that has asked for
nothing for longest makes room, so that who does ask is always answered.
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
# One part in so many of the descriptors goes to connections; files, children and databases have the others.
_SHARE: Final = 4
_MOST_DESCRIPTORS: Final = 1 << 16
_AT_ONCE: Final = 64
_SWEEP_S: Final = 0.5
_PAUSE_S: Final = 0.5
_USED_UP: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of connections: their number, and the time of each.

    Attributes:
        connections: So many at the same time.
        head_s: Until TLS is agreed upon, and until a request's line and headers are there.
        answer_s: Until an answer that has begun is taken.
    """

    connections: int = _MOST
    head_s: float = 10.0
    answer_s: float = 120.0


def bounds() -> Bounds:
    """The bounds of this process, once it may open as many files as the machine allows it."""
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
    """One connection, which knows what it waits for and since when.

    Attributes:
        head_since: Since when the head of a request is expected; None while a request is worked on, and
            between two requests, where uvicorn's own clock runs.
        answer_since: Since when an answer has not been taken; None where none is.
    """

    def __init__(self, lost: Callable[[Connection], None], **given: Any) -> None:
        super().__init__(**given)
        self._lost = lost
        self.head_since: float | None = self.loop.time()
        self.answer_since: float | None = None

    @property
    def answering(self) -> bool:
        """Return whether a request is processed, or still arriving."""
        cycle = cast("RequestResponseCycle | None", self.cycle)  # there is none before the first request
        return cycle is not None and not cycle.response_complete

    @property
    def dispensable(self) -> int | None:
        """Return how readily it may be closed for a new one, lower first; None if it may not be."""
        if self.answer_since is not None:
            return 2  # the client does not take what it has asked for
        if not self.answering:
            return 0
        return 1 if self.cycle.more_body else None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """It is open: its requests carry who is at its other end."""
        super().connection_made(transport)
        self.app_state = with_peer(self.app_state, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed."""
        super().connection_lost(exc)
        self._lost(self)

    def data_received(self, data: bytes) -> None:
        """Something has come."""
        if not self.answering and self.head_since is None:
            self.head_since = self.loop.time()
        super().data_received(data)
        self._note_request()

    def on_response_complete(self) -> None:
        """A request is answered; the next one may be there already."""
        self.head_since = None
        super().on_response_complete()
        self._note_request()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP; in the middle of an answer there is nothing more to say."""
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:
            self.transport.abort()

    def late(self, now: float, within: Bounds) -> bool:
        """Return whether it has used up its time."""
        if self.head_since is not None and now - self.head_since > within.head_s:
            return True
        transport = cast(
            "asyncio.Transport | None", self.transport
        )  # there is none before TLS is agreed upon
        if transport is None:
            return False
        if transport.get_write_buffer_size() == 0:
            self.answer_since = None
            if transport.is_closing() and self.head_since is None:
                self.head_since = now  # the other side has to agree to the end of TLS
        elif self.answer_since is None:
            self.answer_since = now
        return self.answer_since is not None and now - self.answer_since > within.answer_s

    def _note_request(self) -> None:
        if self.answering:
            self.head_since = None


@dataclass(slots=True)
class _Place:
    """A place that a connection has taken, from the moment it was accepted."""

    socket: socket.socket
    connection: Connection
    opening: asyncio.Task[None] | None = None

    def give_up(self) -> None:
        if self.opening is not None and not self.opening.done():
            self.opening.cancel()
        else:
            self.connection.transport.abort()


class Acceptor:
    """Accepts connections on a socket, and closes those that take too long; uvicorn knows it as a server.

    Args:
        listening: The socket that is listened on.
        make: Makes what speaks HTTP on a connection; it is given whom to tell that it was lost.
        tls: How TLS is spoken; None without.
        within: The bounds.
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
        """Let nobody in any more."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._listening)
        self._sweeper.cancel()
        for place in list(self._places.values()):
            if place.opening is not None and not place.opening.done():
                place.give_up()

    async def wait_closed(self) -> None:
        """Wait until `close` is through."""
        with suppress(asyncio.CancelledError):
            await self._sweeper

    def _listen(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):  # what came in before is answered in between
            try:
                accepted, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _USED_UP:
                    return
                # Another part of the process has used them up: some are given back, and it is tried again.
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
        """It is a connection now, or has made room, gone, or spoken no TLS."""
        if opening.cancelled() or opening.exception() is not None:
            self._forget(place.connection)
            place.socket.close()

    def _forget(self, connection: Connection) -> None:
        self._places.pop(connection, None)

    def _make_room(self) -> bool:
        """Close the connection that is missed least; False if each has asked for something."""
        ranked = (
            (rank, place)
            for connection, place in self._places.items()  # the oldest first, which comes out of several
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
