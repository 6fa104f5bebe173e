"""How much may come out of a file: a checkpoint may be a stranger's, and its lengths are only claims.

Nothing here goes by a length that a file states: what is unpacked is counted as it comes, and a stated length
is believed only as far as the packed bytes could hold it.
"""

from __future__ import annotations

from typing import Final

from holdfast.errors import Corrupt

# What any file may unpack to. Spark's own state streams come to four to thirty times their packed size.
FREE_BYTES: Final = 64 << 20
# Beyond that, by packed byte. Zstandard reaches ten thousand on bytes that only repeat; rows of state do not.
RATIO: Final = 1024
# LZ4 puts at most 255 bytes into one, Snappy at most 64 into three; both have some bytes of their own.
LZ4_RATIO: Final = 255
SNAPPY_RATIO: Final = 22
# One JSON document or line: the offsets of a million Kafka partitions are some 20 MB.
JSON_CHARACTERS: Final = 64 << 20
# Schemas of nested types need a few levels for each; Python reads a thousand less those of its own stack.
JSON_LEVELS: Final = 200
# A snapshot's zip holds a few small files of RocksDB's, and a list of data files of some 150 bytes each.
ZIP_ENTRIES: Final = 4096
ZIP_BYTES: Final = 256 << 20
# Spark runs a task for each partition of each batch; nobody has a hundred thousand.
PARTITIONS: Final = 100_000
# Java's `Long`, which batch ids are.
HIGHEST_NUMBER: Final = (1 << 63) - 1


class Allowance:
    """What may still be unpacked of one file.

    Args:
        packed_bytes: The file's own bytes.
        what: The file's role, for messages.
        where: The file, for messages.
    """

    __slots__ = ("_left", "_limit", "_what", "_where")

    def __init__(self, packed_bytes: int, what: str, where: str) -> None:
        self._limit = max(FREE_BYTES, RATIO * packed_bytes)
        self._left = self._limit
        self._what = what
        self._where = where

    def take(self, size: int) -> int:
        """Count bytes that are about to be unpacked, or have been; returns them.

        Raises:
            Corrupt: They are more than the file may hold.
        """
        if size < 0 or size > self._left:
            raise Corrupt(
                f"{self._what} unpacks to more than it may hold",
                where=self._where,
                found=f"more than {self._limit:,} bytes",
                expected=f"at most {RATIO:,} for each of its own, or {FREE_BYTES:,}",
                hint="no query of Spark's writes such a file: do not trust what it came from",
            )
        self._left -= size
        return size
