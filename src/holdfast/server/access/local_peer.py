"""Identification of the user at the other end of a loopback connection.

The kernel is queried for one socket; unlike reading `/proc/net/tcp`, the cost does not grow with the number
of sockets.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_NLM_F_REQUEST: Final = 1
_HEADER: Final = struct.Struct("=IHHII")
# inet_diag_req_v2 and inet_diag_msg; the ends between them are in the network's byte order.
_REQUEST: Final = struct.Struct("=BBBBI")
_PORTS: Final = struct.Struct("!HH")
_ANY_DEVICE_AND_COOKIE: Final = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
_FOUND: Final = struct.Struct("=BBBB4s16s16s12sIIIII")
_ALL_STATES: Final = 0xFFFFFFFF
_ANSWER_S: Final = 1.0
_LARGEST: Final = 8192
_IPV4_BYTES: Final = 4

End = tuple[bytes, int]


@dataclass(frozen=True, slots=True)
class TcpSocket:
    """A TCP socket, as reported by the kernel.

    Attributes:
        state: The number of the TCP state.
        uid: The user id of the owner; also 0 if no process has the socket open any more.
        inode: The inode number; 0 if no process has the socket open any more.
    """

    state: int
    uid: int
    inode: int


def find_socket(local: End, remote: End) -> TcpSocket | None:
    """Return the TCP socket with these two ends.

    Args:
        local: The socket's own end: the address as 4 or 16 bytes, and the port.
        remote: The other end.

    Returns:
        None if the socket does not exist, or the kernel does not report it.
    """
    if not sys.platform.startswith("linux"):
        return None
    family = socket.AF_INET if len(local[0]) == _IPV4_BYTES else socket.AF_INET6
    ends = _PORTS.pack(local[1], remote[1])
    addresses = local[0].ljust(16, b"\0"), remote[0].ljust(16, b"\0")
    request = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, _ALL_STATES) + ends
    answer = _ask(request + b"".join(addresses) + _ANY_DEVICE_AND_COOKIE)
    if len(answer) < _FOUND.size:
        return None
    _, state, _, _, found_ends, near, far, _, _, _, _, uid, inode = _FOUND.unpack_from(answer)
    # The kernel returns the listening socket of the port if no connection has these ends.
    size = len(local[0])
    if (found_ends, near[:size], far[:size]) != (ends, local[0], remote[0]):
        return None
    return TcpSocket(state, uid, inode)


def _ask(request: bytes) -> bytes:
    """Send a query for one socket to the kernel and return the reply; empty without one."""
    header = _HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
            kernel.settimeout(_ANSWER_S)
            kernel.sendto(header + request, (0, 0))
            answer, sender = kernel.recvfrom(_LARGEST)
    except OSError:
        return b""
    from_kernel = sender[0] == 0 and len(answer) >= _HEADER.size
    if not from_kernel or _HEADER.unpack_from(answer)[1] != _SOCK_DIAG_BY_FAMILY:
        return b""  # sent by a different process, or an error
    return answer[_HEADER.size :]


# The key of a connection's peer in the scope of a request.
PEER: Final = "holdfast.peer"
# Java's sockets use IPv6 and show 127.0.0.1 as ::ffff:127.0.0.1, so both forms are looked up.
TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ROOT: Final = 0
# States of a socket that its process still has open: established, or half-closed after the request. A closed
# socket has no owner, and the kernel reports it as root's.
_OPEN_STATES: Final = frozenset({1, 4, 5})
_ESTABLISHED, _CLOSE_WAIT = 1, 8

SocketAddress = tuple[str, int]


def can_tell() -> bool:
    """Return whether this machine reports the user of a connection."""
    return os.access(TABLES[0], os.R_OK)


class LocalPeer:
    """The other end of one connection; its user is looked up once, on first use.

    Args:
        transport: The transport of the accepted connection.
    """

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    @property
    def trusted(self) -> bool:
        """Return whether the peer is this process's own user or root, who need no token."""
        return self.uid in (os.geteuid(), _ROOT)

    @cached_property
    def uid(self) -> int | None:
        """The user id; None if the peer's process has ended or the user is unknown."""
        connection = self._transport.get_extra_info("socket")
        if connection is None:
            return None
        try:
            ours, theirs = connection.getsockname()[:2], connection.getpeername()[:2]
            if not _lives(connection):
                return None
            uid = _uid_from_kernel(theirs, ours)
            # While this end is open, no other process can have the other end.
            return uid if _lives(connection) else None
        except (OSError, ValueError):
            return None


def _lives(connection: socket.socket) -> bool:
    state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    return state in (_ESTABLISHED, _CLOSE_WAIT)


def with_peer(state: dict[str, Any], transport: Any) -> dict[str, Any]:
    """Return the server's state for the requests of one connection, with its peer added."""
    return {**state, PEER: LocalPeer(transport)}


def _uid_from_kernel(theirs: SocketAddress, ours: SocketAddress) -> int | None:
    """Return the user at the other end of a connection of this process.

    The tables of all sockets are read only if the query does not find this process's own end either, because
    reading them takes tens of milliseconds with thousands of connections, which any client can open.
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


def uid_of(local: SocketAddress, remote: SocketAddress) -> int | None:
    """Return the user of the socket with these two ends from the kernel's tables, or None."""
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


def _ends(end: SocketAddress) -> list[End]:
    """Return an end of a connection in its IPv4 and IPv6 forms."""
    address, port = ipaddress.ip_address(end[0].partition("%")[0]), end[1]
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return [(address.packed, port)]
        address = address.ipv4_mapped
    return [(address.packed, port), (b"\0" * 10 + b"\xff\xff" + address.packed, port)]


def _row_address(packed: bytes, port: int) -> str:
    """Return an address in the format of the kernel's tables: 32-bit words in machine order."""
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
