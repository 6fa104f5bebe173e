"""Which user of this machine is at the other end of a loopback connection, as the kernel knows it."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from holdfast.server.socket_diag import End, find_socket

# Where a request's scope keeps the peer of its connection.
PEER: Final = "holdfast.peer"
# Java's sockets speak IPv6 and show 127.0.0.1 as ::ffff:127.0.0.1, so both are looked at.
TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ROOT: Final = 0
# Of a socket that its process still has: established, or closed for sending after the request. One that was
# closed belongs to nobody, and the kernel shows it as one of root's.
_OPEN_STATES: Final = frozenset({1, 4, 5})
_ESTABLISHED, _CLOSE_WAIT = 1, 8

Address = tuple[str, int]


def can_tell() -> bool:
    """Whether this machine tells which user a connection belongs to."""
    return os.access(TABLES[0], os.R_OK)


class LocalPeer:
    """The other end of one connection; it is looked up once, when somebody first asks.

    Args:
        transport: The connection as it was accepted.
    """

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    @property
    def trusted(self) -> bool:
        """Whether it is this process's own user, or root, who needs no leave."""
        return self.uid in (os.geteuid(), _ROOT)

    @cached_property
    def uid(self) -> int | None:
        """The user's number; None where nobody is there any more, or it is not told."""
        connection = self._transport.get_extra_info("socket")
        if connection is None:
            return None
        try:
            ours, theirs = connection.getsockname()[:2], connection.getpeername()[:2]
            if not _lives(connection):
                return None
            uid = _uid_from_kernel(theirs, ours)
            # As long as this end lives nobody else can be at the other one.
            return uid if _lives(connection) else None
        except (OSError, ValueError):
            return None


def _lives(connection: socket.socket) -> bool:
    state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    return state in (_ESTABLISHED, _CLOSE_WAIT)


def with_peer(state: dict[str, Any], transport: Any) -> dict[str, Any]:
    """The state of a server as the requests of one connection carry it: with who is at its other end."""
    return {**state, PEER: LocalPeer(transport)}


def _uid_from_kernel(theirs: Address, ours: Address) -> int | None:
    """The user at the other end of a connection of this process.

    The tables of all sockets are read only where the kernel does not know our own end either: it takes tens
    of milliseconds with thousands of connections, and everybody may open these.
    """
    known = False
    for near, far in zip(_ends(theirs), _ends(ours), strict=True):
        known_socket = find_socket(near, far)
        if known_socket is not None:
            known = True
            if known_socket.state in _OPEN_STATES and known_socket.inode != 0:
                return known_socket.uid
    if known or any(find_socket(far, near) for near, far in zip(_ends(theirs), _ends(ours), strict=True)):
        return None
    return uid_of(theirs, ours)


def uid_of(local: Address, remote: Address) -> int | None:
    """The user whose socket has these two ends, out of the tables; None if no process has such a socket."""
    wanted = {
        (_row_address(*near), _row_address(*far))
        for near, far in zip(_ends(local), _ends(remote), strict=True)
    }
    for fields in _rows():
        open_one = int(fields[3], 16) in _OPEN_STATES and fields[9] != "0"
        if (fields[1], fields[2]) in wanted and open_one:
            return int(fields[7])
    return None


def _rows() -> Iterator[list[str]]:
    for table in TABLES:
        try:
            text = table.read_text(encoding="ascii")
        except OSError:  # a kernel without IPv6
            continue
        for line in text.splitlines()[1:]:
            fields = line.split(maxsplit=10)
            if len(fields) > 9:
                yield fields


def _ends(end: Address) -> list[End]:
    """An end of a connection as sockets of IPv4 and of IPv6 know it."""
    address, port = ipaddress.ip_address(end[0].partition("%")[0]), end[1]
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return [(address.packed, port)]
        address = address.ipv4_mapped
    return [(address.packed, port), (b"\0" * 10 + b"\xff\xff" + address.packed, port)]


def _row_address(packed: bytes, port: int) -> str:
    """An address as the kernel's tables write it: words of 32 bits in the machine's own order."""
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
