"""Java's DataInput and DataOutput: big-endian numbers and the text of `writeUTF`."""

from __future__ import annotations

import struct

from holdfast.errors import Corrupt
from holdfast.formats.text import damaged

# What one `writeUTF` can hold; longer text is cut into chunks, counted in Java's characters.
CHUNK = 65_535


class Reader:
    """Takes values off the front of bytes.

    Args:
        data: The bytes.
        what: The file's role, for messages.
        where: The file, for messages.
    """

    def __init__(self, data: bytes, what: str, where: str) -> None:
        self._data = data
        self._what = what
        self._where = where
        self.at = 0

    def integer(self) -> int:
        """Four bytes, signed."""
        return int(struct.unpack(">i", self._take(4))[0])

    def short(self) -> int:
        """Two bytes, signed."""
        return int(struct.unpack(">h", self._take(2))[0])

    def text(self) -> str:
        """What `writeUTF` wrote."""
        (length,) = struct.unpack(">H", self._take(2))
        start = self.at
        try:
            return decode_utf(self._take(length))
        except UnicodeDecodeError as error:
            raise self.damaged(f"bytes that are not text, at {start}") from error

    def end(self) -> None:
        """Refuse anything behind the last value.

        Raises:
            Corrupt: There is more.
        """
        if self.at != len(self._data):
            raise self.damaged(f"{len(self._data) - self.at} bytes too many")

    def damaged(self, found: str, expected: str | None = None) -> Corrupt:
        """The error for what was found."""
        return damaged(self._what, self._where, found, expected)

    def _take(self, length: int) -> bytes:
        end = self.at + length
        if end > len(self._data):
            raise self.damaged(f"{len(self._data)} bytes", f"at least {end}")
        taken = self._data[self.at : end]
        self.at = end
        return taken


def decode_utf(data: bytes) -> str:
    """Text from Java's modified UTF-8.

    Raises:
        UnicodeDecodeError: It is not.
    """
    if data.isascii():
        return data.decode("ascii")
    halves = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    return halves.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def encode_utf(text: str) -> bytes:
    """Text as `writeUTF` puts it, with its length before it."""
    data = modified_utf8(text)
    return struct.pack(">H", len(data)) + data


def modified_utf8(text: str) -> bytes:
    """Text as Java writes it: by UTF-16 units, and without a zero byte."""
    if text.isascii() and "\0" not in text:
        return text.encode("ascii")
    units = struct.iter_unpack("<H", text.encode("utf-16-le", "surrogatepass"))
    halves = "".join(chr(unit) for (unit,) in units)
    return halves.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")
