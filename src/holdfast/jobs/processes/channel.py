"""The line between a supervisor and its child: messages over a socket pair.

Either side sees the other's death as the end of the stream, at once and without a timer.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator

from holdfast.jobs.processes.protocol import Message, decode, encode

DESCRIPTOR = "HOLDFAST_CHANNEL"


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

    def send(self, message: Message) -> bool:
        """Send one message; False if nobody is there any more."""
        try:
            self._end.sendall(encode(message) + b"\n")
        except OSError:
            return False
        return True

    def receive(self) -> list[Message] | None:
        """Wait for bytes and return the messages they complete; None at the end of the stream.

        Raises:
            Internal: The peer has sent something that is no message.
        """
        try:
            data = self._end.recv(65536)
        except OSError:
            return None
        if not data:
            return None
        *lines, self._pending = (self._pending + data).split(b"\n")
        return [decode(line) for line in lines if line]

    def messages(self) -> Iterator[Message]:
        """Messages as they come, until the stream ends.

        Raises:
            Internal: The peer has sent something that is no message.
        """
        while (batch := self.receive()) is not None:
            yield from batch

    def close(self) -> None:
        """Hang up."""
        self._end.close()


def die_with_peer(channel: Channel) -> None:
    """From now on end this process group when the process at the other end does; it is told nothing else."""

    def listen() -> None:
        try:
            for _ in channel.messages():
                pass
        finally:
            os.killpg(os.getpid(), signal.SIGKILL)

    threading.Thread(target=listen, name="holdfast-orders", daemon=True).start()
