"""The handling of standard streams that are closed, full, interrupted, or written to by Spark."""

from __future__ import annotations

import codecs
import io
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NoReturn, TextIO

import typer

from holdfast.errors import Invalid, Unavailable

_ERRORS: Final = "holdfast-plain"

# ASCII replacements of the non-ASCII characters in our messages. Other characters that an encoding lacks are
# escaped.
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
    """Standard output whose failed writes raise an error with a message."""

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
            raise error  # such as `head`, which has read enough
        raise Unavailable(
            "cannot write to standard output",
            code="HF-E5007",
            found=error.strerror,
            hint="free space at the target or redirect the output; the command itself may have completed",
        ) from error


def prepare() -> None:
    """Reopen closed standard streams, and make every character printable in any encoding.

    If a standard stream stayed closed, the next opened file would get its descriptor, and text would be
    printed into that file.
    """
    # The system assigns the lowest free descriptor.
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    codecs.register_error(_ERRORS, _plain)
    if sys.stdout is not None:
        sys.stdout.flush()
    sys.stdout = _Output(
        open(1, "wb", closefd=False),  # noqa: SIM115 - open for the process
        encoding=getattr(sys.stdout, "encoding", None),
        errors=_ERRORS,
        line_buffering=os.isatty(1),
    )
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False, errors=_ERRORS)  # noqa: SIM115 - open for the process


def say(text: str, stream: TextIO | None = None) -> None:
    """Write a message, to standard error by default; a failed write is ignored."""
    heard = stream or sys.stderr
    try:
        heard.write(text)
        heard.flush()
    except OSError:
        if stream is None:
            sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - open for the process


def is_unicode() -> bool:
    """Return whether standard output can encode every character."""
    return codecs.lookup(sys.stdout.encoding or "ascii").name.startswith("utf")


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_PLAIN)
    return text.encode("ascii", "backslashreplace").decode("ascii"), error.end


@contextmanager
def without_sparks_words() -> Iterator[TextIO]:
    """Discard the output of Spark and of the job file; yield a stream for Holdfast's own messages.

    The JVM writes to this process's standard error, and a job file may print.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as log:
        before = [os.dup(number) for number in (1, 2)]
        for number in (1, 2):
            os.dup2(log.fileno(), number)
        try:
            with open(
                before[1], "w", encoding=sys.stderr.encoding, errors="backslashreplace", closefd=False
            ) as words:
                yield words
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, real in zip((1, 2), before, strict=True):
                os.dup2(real, number)
                os.close(real)


def confirm(question: str, does: str = "deletes data") -> None:
    """Ask for confirmation on the terminal, and end the command if it is refused.

    Args:
        question: The question.
        does: The effect of the command, for the error without a terminal.

    Raises:
        Invalid: Standard input is not a terminal.
    """
    if not sys.stdin.isatty():
        raise Invalid(
            f"the command {does}, but there is no terminal on which to confirm",
            code="HF-E2148",
            hint="add --yes to confirm",
        )
    typer.confirm(question, abort=True, err=True)
