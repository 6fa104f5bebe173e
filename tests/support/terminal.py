"""The command on a terminal: what a person sees, and what went into a pipe."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from command import PROGRAM, environment

# What moves the cursor, hides it or colours a bar.
_CONTROL = re.compile(r"\x1b\[[?0-9;]*[A-Za-z]|\r")


@dataclass(frozen=True)
class Seen:
    """What a call has left.

    Attributes:
        code: Its exit code.
        lines: What stands on the terminal.
        piped: What went into the pipe, where the answer goes into one.
    """

    code: int
    lines: list[str]
    piped: str


def on_terminal(
    words: Sequence[str], folder: Path, home: Path, *, piped: bool = False, ended_at: str | None = None
) -> Seen:
    """Run the command at a terminal of 80 columns.

    Args:
        words: What stands behind `holdfast`.
        folder: The working directory.
        home: The state home.
        piped: Whether standard output is a pipe.
        ended_at: Ctrl-C is pressed at the end of a line when this has been printed.
    """
    own, other = pty.openpty()
    with subprocess.Popen(
        [PROGRAM, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if piped else other,
        stderr=other,
        cwd=folder,
        env={**environment(home), "TERM": "xterm", "COLUMNS": "80"},
        start_new_session=True,
    ) as process:
        os.close(other)
        answer = b"" if process.stdout is None else process.stdout.read()
        seen = b""
        while True:
            try:
                part = os.read(own, 4096)
            except OSError:  # as Linux says that nobody holds the other end any more
                break
            seen += part
            if ended_at is not None and ended_at.encode() in seen and seen.endswith(b"\n"):
                os.killpg(process.pid, signal.SIGINT)
                ended_at = None
        os.close(own)
        code = process.wait(timeout=60)
    return Seen(code, _CONTROL.sub("", seen.decode()).splitlines(), answer.decode())
