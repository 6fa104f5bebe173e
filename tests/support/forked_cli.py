"""The `holdfast` command in processes of its own, each of which starts in milliseconds.

One process loads the modules of the command line and nothing else; each call is a fork of it, in a session
of its own, with the standard streams, terminal, directory, environment and rights that it is given. What the
interpreter does before the first line of ours, such as reading the locale, is one for `command.command_in`.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import fork_server
import pytest
from command import PROGRAM
from fork_server import ANSWER

# Stands for the descriptor of a stream that is closed.
CLOSED: Final = -1


@dataclass(frozen=True)
class Ended:
    """How a call has ended.

    Attributes:
        returncode: As `subprocess` tells it: that of a signal is negative.
        stdout: What it printed; on a terminal its words are here too.
        stderr: Its words.
    """

    returncode: int
    stdout: str
    stderr: str = ""


class Call:
    """A call that may still run.

    Attributes:
        pid: Its process, which leads a session and a group.
    """

    def __init__(self, answers: int) -> None:
        self._answers = answers
        self.pid = self._answer()

    def send(self, number: int, *, to_group: bool = False) -> None:
        """Send its process a signal, or all of its group as a terminal does, if it is still there."""
        with suppress(ProcessLookupError):
            (os.killpg if to_group else os.kill)(self.pid, number)

    def ends_within(self, seconds: float) -> bool:
        """Whether it has ended, or does so in this time."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._answers, selectors.EVENT_READ)
            return bool(selector.select(seconds))

    def wait(self, timeout: float) -> int:
        """Its exit code.

        Raises:
            TimeoutError: It still ran, and was ended.
        """
        if not self.ends_within(timeout):
            self.send(signal.SIGKILL, to_group=True)
            raise TimeoutError(f"it has not ended after {timeout} s")
        code = self._answer()
        os.close(self._answers)
        return code

    def _answer(self) -> int:
        data = os.read(self._answers, ANSWER.size)
        assert len(data) == ANSWER.size, "the process that forks is gone"
        value: int = ANSWER.unpack(data)[0]
        return value


class ForkedCli:
    """Calls the command.

    Args:
        server: The process that forks, at the other end of a socket.
    """

    def __init__(self, server: socket.socket) -> None:
        self._server = server

    def start(
        self,
        words: Sequence[str],
        *,
        cwd: Path,
        environ: Mapping[str, str],
        streams: Sequence[int],
        powerless: bool = False,
        user: int | None = None,
    ) -> Call:
        """Start a call.

        Args:
            words: The words behind `holdfast`.
            cwd: Its directory.
            environ: Its whole environment.
            streams: Descriptors of its standard streams. One that is a terminal becomes that of its session.
            powerless: Root without root's rights: the mode of a file binds its owner.
            user: The number of its user, whom the system need not know; it may use all files.
        """
        request = {
            "argv": [PROGRAM, *words],
            "cwd": str(cwd),
            "environ": dict(environ),
            "streams": [stream != CLOSED for stream in streams],
            "powerless": powerless and os.geteuid() == 0,
            "user": user,
        }
        reading, writing = os.pipe()
        given = [stream for stream in streams if stream != CLOSED]
        socket.send_fds(self._server, [json.dumps(request).encode()], [writing, *given])
        os.close(writing)
        return Call(reading)

    def run(
        self,
        words: Sequence[str],
        *,
        cwd: Path,
        environ: Mapping[str, str],
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        powerless: bool = False,
        user: int | None = None,
        timeout: float = 60,
    ) -> Ended:
        """Run a call to its end; where a stream is not given, input is empty, and what is written is read."""
        with (
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
            Path(os.devnull).open() as empty,
        ):
            call = self.start(
                words,
                cwd=cwd,
                environ=environ,
                streams=(
                    empty.fileno() if stdin is None else stdin,
                    out.fileno() if stdout is None else stdout,
                    err.fileno() if stderr is None else stderr,
                ),
                powerless=powerless,
                user=user,
            )
            code = call.wait(timeout)
            out.seek(0)
            err.seek(0)
            return Ended(code, out.read().decode(errors="replace"), err.read().decode(errors="replace"))

    def on_terminal(
        self,
        words: Sequence[str],
        *,
        cwd: Path,
        environ: Mapping[str, str],
        columns: int,
        timeout: float = 60,
    ) -> Ended:
        """Run a call on a terminal of a width, at which nobody presses a key."""
        own, other = pty.openpty()
        try:
            fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
            call = self.start(words, cwd=cwd, environ=environ, streams=(other, other, other))
            os.close(other)
            shown = _shown(own, time.monotonic() + timeout)
            return Ended(call.wait(timeout), shown.decode(errors="replace").replace("\r\n", "\n"))
        finally:
            os.close(own)


def _shown(terminal: int, deadline: float) -> bytes:
    """What is shown until nobody holds the other end any more."""
    shown = b""
    with selectors.DefaultSelector() as selector:
        selector.register(terminal, selectors.EVENT_READ)
        while selector.select(max(deadline - time.monotonic(), 0)):
            try:
                part = os.read(terminal, 65536)
            except OSError:  # as Linux says it
                break
            if not part:
                break
            shown += part
    return shown


@pytest.fixture(scope="module")
def cli() -> Iterator[ForkedCli]:
    """The command, for the tests of a module."""
    own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with own, other:
        server = subprocess.Popen(
            [sys.executable, fork_server.__file__, str(other.fileno())],
            pass_fds=[other.fileno()],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
        )
        other.close()
        try:
            yield ForkedCli(own)
        finally:
            own.shutdown(socket.SHUT_RDWR)
            server.wait(timeout=60)
