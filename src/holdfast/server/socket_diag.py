"""One TCP socket of this machine, asked of the kernel by its two ends: Linux's `sock_diag` over netlink.

It costs the same however many sockets there are. `/proc/net/tcp` lists all of them for each question.
"""

from __future__ import annotations

import socket
import struct
import sys
from dataclasses import dataclass
from typing import Final

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
    """A socket as the kernel describes it.

    Attributes:
        state: The number of its TCP state.
        uid: Whose it is; 0 also where no process has it any more.
        inode: Its number; 0 where no process has it any more.
    """

    state: int
    uid: int
    inode: int


def find_socket(local: End, remote: End) -> TcpSocket | None:
    """The socket with these two ends.

    Args:
        local: Its own end: the address as 4 or 16 bytes, and the port.
        remote: The other end.

    Returns:
        None if there is no such socket, or the kernel does not tell.
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
    # The kernel gives the listening socket of the port where no connection has these ends.
    size = len(local[0])
    if (found_ends, near[:size], far[:size]) != (ends, local[0], remote[0]):
        return None
    return TcpSocket(state, uid, inode)


def _ask(request: bytes) -> bytes:
    """What the kernel says of one socket; empty if it says nothing."""
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
        return b""  # another process has sent it, or it is an error
    return answer[_HEADER.size :]
