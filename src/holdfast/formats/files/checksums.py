"""The checksum files that Spark and Hadoop write next to a file.

Spark writes `<name>.crc` for state files in state-checkpoint format 2: JSON with a CRC-32C of the complete
file. Hadoop writes `.<name>.crc` with every local file: a CRC-32 per 512 bytes by default.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from google_crc32c import value as crc32c
from zlib_ng.zlib_ng import crc32

from holdfast.errors import Unsupported
from holdfast.formats.text import compact, damaged, decoded, json_object, string, whole_number

ALGORITHM: Final = "CRC32C"
_SPARK = "a checksum of Spark's"
_HADOOP = "a checksum of Hadoop's"
_MAGIC: Final = b"crc\0"
_HEAD: Final = 8
_SUM: Final = 4
# A smaller number of checksums is compared one by one.
_MANY: Final = 8
_PORTION: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class SparkChecksum:
    """Spark's checksum of a file, as stored in `<name>.crc`.

    Attributes:
        value: The CRC-32C, signed as Java writes it.
        size: The size of the file in bytes.
        fields: All fields of the checksum file, unchanged.
    """

    value: int
    size: int
    fields: Mapping[str, Any]

    def mismatch(self, data: bytes) -> str | None:
        """Return a description of the mismatch between the checksum and a file's bytes, or None if they
        match.

        The speed is about ten gigabytes per second.
        """
        if len(data) != self.size:
            return f"{len(data)} bytes, but the checksum covers {self.size}"
        found = crc32c(data)
        if found != self.value & 0xFFFFFFFF:
            return f"CRC-32C {found:08x}, but the checksum is {self.value & 0xFFFFFFFF:08x}"
        return None

    def render(self) -> bytes:
        """Return the content of the checksum file."""
        return compact(self.fields).encode()


def spark_checksum(data: bytes, made_ms: int) -> SparkChecksum:
    """Return the checksum that Spark would write for a file.

    Args:
        data: The bytes of the complete file.
        made_ms: The time in epoch milliseconds, which Spark writes and never reads.
    """
    value = crc32c(data)
    signed = value - (1 << 32) if value & 0x80000000 else value
    fields = {
        "algorithm": ALGORITHM,
        "value": signed,
        "mainFileSize": len(data),
        "timestampMs": made_ms,
        "creator": {"executorId": "driver", "taskInfo": ""},
    }
    return SparkChecksum(signed, len(data), fields)


def parse_spark_checksum(data: bytes, where: str) -> SparkChecksum:
    """Parse a `<name>.crc` file.

    Raises:
        Corrupt: The file is not in the format that Spark writes.
        Unsupported: The checksum algorithm is unknown.
    """
    fields = json_object(decoded(data, _SPARK, where), _SPARK, where)
    algorithm = string(fields, "algorithm", _SPARK, where)
    if algorithm != ALGORITHM:
        raise Unsupported(
            "unknown checksum algorithm",
            code="HF-E7063",
            where=where,
            found=algorithm,
            expected=ALGORITHM,
            hint="upgrade Holdfast: a newer Spark wrote this file",
        )
    value = whole_number(fields, "value", _SPARK, where)
    return SparkChecksum(value, whole_number(fields, "mainFileSize", _SPARK, where), fields)


@dataclass(frozen=True, slots=True)
class HadoopChecksum:
    """Hadoop's checksums of a file: one for each `step` bytes.

    Attributes:
        step: The number of bytes that each checksum covers; the last one may cover fewer.
        packed: The checksums, four bytes each.
    """

    step: int
    packed: bytes

    def mismatch(self, data: bytes) -> str | None:
        """Return a description of the mismatch between the checksums and a file's bytes, or None if they
        match.

        The speed is about eight gigabytes per second.
        """
        many, expected = len(self.packed) // _SUM, -(-len(data) // self.step)
        if expected != many:
            return f"{len(data)} bytes, but the checksums cover about {many * self.step}"
        # Portions fit in the processor's caches.
        portion = self.step * max(1, _PORTION // self.step)
        view = memoryview(data)
        compared = ChecksumComparison(self)
        for start in range(0, len(data), portion):
            compared.see(view[start : start + portion])
        if compared.fits:
            return None
        found = _each(data, self.step)
        at = next(
            at for at in range(0, len(found), _SUM) if found[at : at + _SUM] != self.packed[at : at + _SUM]
        )
        start = self.step * (at // _SUM)
        return f"bytes {start} to {min(start + self.step, len(data))} differ"

    def render(self) -> bytes:
        """Return the content of the checksum file."""
        return _MAGIC + struct.pack(">I", self.step) + self.packed


@dataclass(slots=True)
class ChecksumComparison:
    """A comparison of a file, read in portions, with Hadoop's checksums.

    The length of each portion must be a multiple of `sums.step`, except that of the last one. Otherwise the
    comparison reports a mismatch.
    """

    sums: HadoopChecksum
    _seen: int = field(default=0, init=False)
    _fits: bool = field(default=True, init=False)
    _room: bytearray = field(default_factory=bytearray, init=False)

    def see(self, portion: bytes | memoryview) -> None:
        """Compare the next portion with its checksums."""
        end = self._seen + _SUM * -(-len(portion) // self.sums.step)
        self._fits = self._fits and self._fit(portion, self.sums.packed[self._seen : end])
        self._seen = end

    @property
    def fits(self) -> bool:
        """Return whether all portions matched and no checksums remain."""
        return self._fits and self._seen == len(self.sums.packed)

    def _fit(self, data: bytes | memoryview, packed: bytes) -> bool:
        """Return whether bytes have these checksums; all are compared in one step, which is many times
        faster.

        A CRC is a remainder, and the CRCs of parts can be combined into that of the whole: if each part is
        replaced with zeros and its remainder is XORed into the four bytes that follow, the CRC stays the
        same. A single wrong checksum is always detected; several cancel out with the probability of any CRC
        collision.
        """
        step, view = self.sums.step, memoryview(data)
        many = len(view) // step
        whole = many * step
        if many < _MANY or step < _SUM:
            return _each(view, step) == packed
        if _each(view[whole:], step) != packed[many * _SUM :]:
            return False
        # The contribution of a part to the CRC of zeros; the first byte of a checksum is the last of a
        # remainder.
        zeros = crc32(bytes(step)).to_bytes(_SUM, "big") * many
        remainders = int.from_bytes(packed[: len(zeros)], "big") ^ int.from_bytes(zeros, "big")
        added = remainders.to_bytes(len(zeros), "big")
        if len(self._room) != whole + _SUM:
            self._room = bytearray(whole + _SUM)
        for byte in range(_SUM):
            self._room[step + byte :: step] = added[_SUM - 1 - byte :: _SUM]
        return crc32(bytes(_SUM), crc32(view[:whole])) == crc32(self._room)


def hadoop_checksum(data: bytes, step: int = 512) -> HadoopChecksum:
    """Return the checksums that Hadoop would write for a file."""
    return HadoopChecksum(step, _each(data, step))


def _each(data: bytes | memoryview, step: int) -> bytes:
    view = memoryview(data)
    sums = [crc32(view[start : start + step]) for start in range(0, len(data), step)]
    return struct.pack(f">{len(sums)}I", *sums)


def parse_hadoop_checksum(data: bytes, where: str) -> HadoopChecksum:
    """Parse a `.<name>.crc` file.

    Raises:
        Corrupt: The file is not in the format that Hadoop writes.
    """
    if len(data) < _HEAD or data[:4] != _MAGIC or len(data) % 4:
        raise damaged(_HADOOP, where, f"{len(data)} bytes starting with {data[:4]!r}", f"{_MAGIC!r}")
    step = int.from_bytes(data[4:_HEAD], "big")
    if step == 0:
        raise damaged(_HADOOP, where, "a checksum interval of 0 bytes")
    return HadoopChecksum(step, data[_HEAD:])
