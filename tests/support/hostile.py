"""What a stranger may have put into a file: seeded changes of real ones, for every reader of bytes.

The changes know what files are made of: bits, lengths, numbers, names, nesting. What is packed or summed up
is changed inside too, and packed and summed up again, so that readers get further than the first checksum.
"""

from __future__ import annotations

import io
import os
import random
import re
import resource
import signal
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Final

from grid import WHOLE

from holdfast.errors import HoldfastError

# So many files of each format; `HOLDFAST_SEED` runs another series, or one again.
INPUTS: Final = 10_000 if WHOLE else 300
SEED: Final = os.environ.get("HOLDFAST_SEED", "holdfast")
# What one file may take: far more than any needs, on however slow a machine.
SECONDS: Final = 60
GROWTH_BYTES: Final = 1 << 30

_NUMBERS: Final = (
    *(b"-1", b"0", b"1", b"4294967296", b"2147483647", b"9223372036854775807", b"9223372036854775808"),
    *(b"1" + b"0" * 40, b"1e999", b"1.5", b"true", b"null", b'"12"', b"9" * 5000, b"[]", b"{}"),
)
_TEXTS: Final = (
    *(b'"../../../../etc/passwd"', b'"/etc/passwd"', b'".."', b'"."', b'""', b'"a\\u0000b"', b'"\\ud800"'),
    *(b'"a/b"', b'"' + b"x" * 300 + b'"', b"null", b"7", b"[]", b"{}", b"[" * 3000, b'{"a":' * 3000),
)
_WORDS: Final = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)

Parse = Callable[[bytes], object]


@dataclass(frozen=True)
class Format:
    """A reader, with real files for it.

    Attributes:
        name: What it reads.
        parse: Reads bytes to their end.
        files: Files that it reads.
    """

    name: str
    parse: Parse
    files: Sequence[bytes]


def hostile(files: Sequence[bytes], seed: str, count: int = INPUTS) -> Iterator[bytes]:
    """So many changed files, the same for the same seed."""
    rng = random.Random(f"{SEED} {seed}")
    for _ in range(count):
        data = rng.choice(files)
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            data = rng.choice(_CHANGES)(data, files, rng)
        yield data


def require_answered(format_: Format, count: int = INPUTS) -> None:
    """Each file gives a value or an error of ours, in bounded time and memory."""
    before = peak()
    for number, data in enumerate(hostile(format_.files, format_.name, count)):
        with _deadline():
            try:
                format_.parse(data)
            except HoldfastError as error:
                str(error).encode()  # it can be shown
            except Exception as error:
                raise AssertionError(_told(format_.name, number, data)) from error
        assert peak() - before < GROWTH_BYTES, _told(format_.name, number, data)


def _told(name: str, number: int, data: bytes) -> str:
    return f"{name}: input {number} of seed {SEED!r}: {data[:200]!r} ({len(data)} bytes)"


def peak() -> int:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@contextmanager
def _deadline() -> Iterator[None]:
    def late(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"{SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _flip(data: bytes, _files: Sequence[bytes], rng: random.Random) -> bytes:
    if not data:
        return b"\0"
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def _cut(data: bytes, _files: Sequence[bytes], rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _drop(data: bytes, _files: Sequence[bytes], rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[at + rng.randrange(1, 9) :]


def _insert(data: bytes, _files: Sequence[bytes], rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.randbytes(rng.randrange(1, 9)) + data[at:]


def _splice(data: bytes, files: Sequence[bytes], rng: random.Random) -> bytes:
    other = rng.choice(files)
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


def _word(data: bytes, _files: Sequence[bytes], rng: random.Random) -> bytes:
    size = rng.choice((1, 2, 4, 8))
    at = rng.randrange(max(len(data) - size, 0) + 1)
    value = rng.choice(_WORDS) & ((1 << 8 * size) - 1)
    return data[:at] + value.to_bytes(size, rng.choice(("big", "little"))) + data[at + size :]


def _number(data: bytes, _files: Sequence[bytes], rng: random.Random) -> bytes:
    return _replaced(rb"-?\d+", data, rng.choice(_NUMBERS), rng)


def _text(data: bytes, _files: Sequence[bytes], rng: random.Random) -> bytes:
    return _replaced(rb'"[^"\\]*"', data, rng.choice(_TEXTS), rng)


def _line(data: bytes, _files: Sequence[bytes], rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    return b"\n".join(rng.choice(([*lines[:at], *lines[at + 1 :]], [*lines, lines[at]], lines[::-1])))


def _replaced(pattern: bytes, data: bytes, value: bytes, rng: random.Random) -> bytes:
    places = [match.span() for match in re.finditer(pattern, data)]
    if not places:
        return _flip(data, (), rng)
    start, end = rng.choice(places)
    return data[:start] + value + data[end:]


_CHANGES: Final = (_flip, _cut, _drop, _insert, _splice, _word, _number, _text, _line)


def entry_of(archive: bytes, name: str) -> bytes:
    """What an archive has under a name."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        return opened.read(name)


def entry_names(archive: bytes) -> list[str]:
    """The names that an archive has something under."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        return opened.namelist()


def with_entry(archive: bytes, name: str, content: bytes) -> bytes:
    """The same archive with something else under a name."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as before, zipfile.ZipFile(made, "w") as after:
        for each in before.namelist():
            if each != name:
                after.writestr(each, before.read(each), zipfile.ZIP_DEFLATED)
        after.writestr(name, content, zipfile.ZIP_DEFLATED)
    return made.getvalue()
