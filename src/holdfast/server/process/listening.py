"""The listening socket of a server, opened before other modules are loaded, so that early clients wait."""

from __future__ import annotations

import errno
import socket
from typing import Final

from holdfast.errors import Conflict, Invalid
from holdfast.server.server_settings import ServerSettings

# Clients that connect during a burst wait in the kernel, which needs no descriptors.
_WAITING: Final = 1024
_NOT_OURS: Final = (errno.EADDRNOTAVAIL, errno.EINVAL)


def listen(settings: ServerSettings) -> socket.socket:
    """Open the listening socket; from then on, clients wait instead of being refused.

    Raises:
        Conflict: The port is in use.
        Invalid: The address is not one of this machine.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((settings.host, settings.port))
        made.listen(_WAITING)
    except OSError as error:
        made.close()
        if isinstance(error, socket.gaierror) or error.errno in _NOT_OURS:
            raise Invalid(
                "the server cannot listen on this address",
                code="HF-E2277",
                where=settings.host,
                found=error.strerror or str(error),
                hint="give an address of this machine with --host",
            ) from error
        raise Conflict(
            "the server's port is in use",
            code="HF-E4061",
            where=settings.url(settings.port),
            found=error.strerror or str(error),
            hint="choose a different port with --port",
        ) from error
    made.set_inheritable(False)
    return made
