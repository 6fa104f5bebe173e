"""Standard output and error as a shell may hand them over: closed, full, or in an encoding without dashes."""

from __future__ import annotations

import codecs
import io
import os
import sys
from pathlib import Path
from typing import Final, NoReturn, TextIO

from holdfast.errors import Unavailable

_ERRORS: Final = "holdfast-plain"

# How the signs of our own words look in ASCII. Whatever else an encoding lacks is escaped, not lost.
_PLAIN: Final = {
    0x2013: "-",
    0x2026: "...",
    0x2192: "->",
    0x00D7: "x",
    0x00B7: "-",
    0x2264: "<=",
    0x2265: ">=",
}


class _Output(io.TextIOWrapper):
    """Standard output; a write that fails is an error with a message, whoever wrote."""

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self._fail(error)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> NoReturn:
        # The interpreter's last flush succeeds, so that the exit code is the error's.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)
        if isinstance(error, BrokenPipeError):
            raise error  # such as `head`, which has seen enough
        raise Unavailable(
            "standard output cannot be written",
            found=error.strerror,
            hint="free space where it goes to, or send it elsewhere; the verb itself may have done its work",
        ) from error


def prepare() -> None:
    """Open what is closed, and let no encoding refuse a character.

    A closed stream means that nobody wants to read it. Were it left closed, the next file to be opened would
    get its number, and what is printed would go into that file.
    """
    # The system gives the lowest number that is free.
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    codecs.register_error(_ERRORS, _plain)
    if sys.stdout is not None:
        sys.stdout.flush()
    sys.stdout = _Output(
        open(1, "wb", closefd=False),  # noqa: SIM115 - as open as the process
        encoding=getattr(sys.stdout, "encoding", None),
        errors=_ERRORS,
        line_buffering=os.isatty(1),
    )
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False, errors=_ERRORS)  # noqa: SIM115 - as open as the process


def say(text: str, stream: TextIO | None = None) -> None:
    """Write words, to standard error by default; no verb fails for want of a listener."""
    heard = stream or sys.stderr
    try:
        heard.write(text)
        heard.flush()
    except OSError:
        if stream is None:
            sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - as open as the process


def is_unicode() -> bool:
    """Whether standard output takes every character."""
    return codecs.lookup(sys.stdout.encoding or "ascii").name.startswith("utf")


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_PLAIN)
    return text.encode("ascii", "backslashreplace").decode("ascii"), error.end
