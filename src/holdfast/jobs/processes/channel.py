"""The line between a supervisor and its driver: JSON lines over a socket pair.

Either side sees the other's death as the end of the stream, at once and without a timer.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.errors import BY_KIND, HoldfastError, Internal

DESCRIPTOR = "HOLDFAST_CHANNEL"

Message = dict[str, Any]


def error_from(fields: Mapping[str, Any]) -> HoldfastError:
    """The error that a child process met, as an error of its own kind."""
    facts = {key: fields.get(key) for key in ("where", "found", "expected", "hint")}
    return BY_KIND.get(str(fields.get("kind")), Internal)(str(fields["error"]), **facts)


class Channel:
    """One end of the line.

    Sending never raises for a peer that has gone; whoever receives will learn of it.
    """

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._pending = b""

    @classmethod
    def pair(cls) -> tuple[Channel, socket.socket]:
        """A supervisor's end, and the raw end to hand to the child process."""
        ours, theirs = socket.socketpair()
        return cls(ours), theirs

    @classmethod
    def inherited(cls) -> Channel:
        """The driver's end, from the descriptor that its supervisor handed down."""
        end = socket.socket(fileno=int(os.environ.pop(DESCRIPTOR)))
        # Were the JVM to inherit it, the supervisor would not see this process die.
        end.set_inheritable(False)
        return cls(end)

    def fileno(self) -> int:
        """For a selector."""
        return self._end.fileno()

    def send(self, kind: str, **fields: Any) -> bool:
        """Send one message; False if nobody is there any more."""
        try:
            self._end.sendall(json.dumps({"kind": kind, **fields}).encode() + b"\n")
        except OSError:
            return False
        return True

    def receive(self) -> list[Message] | None:
        """Wait for bytes and return the messages they complete; None at the end of the stream."""
        try:
            data = self._end.recv(65536)
        except OSError:
            return None
        if not data:
            return None
        *lines, self._pending = (self._pending + data).split(b"\n")
        return [json.loads(line) for line in lines if line]

    def messages(self) -> Iterator[Message]:
        """Messages as they come, until the stream ends."""
        while (batch := self.receive()) is not None:
            yield from batch

    def close(self) -> None:
        """Hang up."""
        self._end.close()
