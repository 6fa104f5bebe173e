"""Which user of this machine is at the other end of a loopback connection, as the kernel knows it."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

# Where a request's scope keeps the peer of its connection.
PEER: Final = "holdfast.peer"
# Java's sockets speak IPv6 and show 127.0.0.1 as ::ffff:127.0.0.1, so both are looked at.
TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ROOT: Final = 0
# Of a socket that its process still has: established, or closed for sending after the request. One that was
# closed belongs to nobody, and the kernel shows it as one of root's.
_OPEN_STATES: Final = frozenset({"01", "04", "05"})
_ESTABLISHED, _CLOSE_WAIT = 1, 8

Address = tuple[str, int]


def can_tell() -> bool:
    """Whether this machine tells whose a connection is."""
    return os.access(TABLES[0], os.R_OK)


class LocalPeer:
    """The other end of one connection; it is looked up once, when somebody first asks.

    Args:
        transport: The connection as it was accepted.
    """

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._trusted: bool | None = None

    @property
    def trusted(self) -> bool:
        """Whether it is this process's own user, or root, who needs no leave."""
        if self._trusted is None:
            self._trusted = self._look() in (os.geteuid(), _ROOT)
        return self._trusted

    def _look(self) -> int | None:
        connection = self._transport.get_extra_info("socket")
        if connection is None:
            return None
        try:
            ours, theirs = connection.getsockname()[:2], connection.getpeername()[:2]
            uid = uid_of(theirs, ours)
            # As long as this end lives nobody else can be at the other one.
            state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        except (OSError, ValueError):
            return None
        return uid if state in (_ESTABLISHED, _CLOSE_WAIT) else None


def with_peer(state: dict[str, Any], transport: Any) -> dict[str, Any]:
    """The state of a server as the requests of one connection carry it: with who is at its other end."""
    return {**state, PEER: LocalPeer(transport)}


def uid_of(local: Address, remote: Address) -> int | None:
    """The user whose socket has these two ends on this machine; None if no process has such a socket."""
    wanted = {
        (_row_address(near, local[1]), _row_address(far, remote[1]))
        for near, far in zip(_forms(local[0]), _forms(remote[0]), strict=True)
    }
    for fields in _rows():
        if (fields[1], fields[2]) in wanted and fields[3] in _OPEN_STATES and fields[9] != "0":
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


def _forms(host: str) -> list[bytes]:
    """An address as sockets of IPv4 and of IPv6 know it."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return [address.packed]
        address = address.ipv4_mapped
    return [address.packed, b"\0" * 10 + b"\xff\xff" + address.packed]


def _row_address(packed: bytes, port: int) -> str:
    """An address as the kernel's tables write it: words of 32 bits in the machine's own order."""
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
