"""The checksums that stand beside files.

`<name>.crc` is Spark's own, in JSON: a CRC-32C of the whole file, written for state files under
state-checkpoint format 2. `.<name>.crc` is Hadoop's, one CRC-32 for each few bytes, and comes with every file
on a local disk.
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


@dataclass(frozen=True, slots=True)
class SparkChecksum:
    """Spark's checksum of a file.

    Attributes:
        value: The CRC-32C, signed as Java writes it.
        size: The file's bytes.
        fields: Everything as it stands.
    """

    value: int
    size: int
    fields: Mapping[str, Any]

    def mismatch(self, data: bytes) -> str | None:
        """What does not fit, in words, or None. Cost: ten gigabytes a second."""
        if len(data) != self.size:
            return f"{len(data)} bytes where its checksum was taken of {self.size}"
        found = crc32c(data)
        if found != self.value & 0xFFFFFFFF:
            return f"CRC-32C {found:08x} where its checksum says {self.value & 0xFFFFFFFF:08x}"
        return None

    def render(self) -> bytes:
        """The file."""
        return compact(self.fields).encode()


def spark_checksum(data: bytes, made_ms: int) -> SparkChecksum:
    """Work out what Spark would write beside these bytes.

    Args:
        data: The whole file.
        made_ms: When, in epoch milliseconds: Spark notes it and never looks at it.
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
    """Read `<name>.crc`.

    Raises:
        Corrupt: Spark cannot have written it.
        Unsupported: It is by another algorithm than is known here.
    """
    fields = json_object(decoded(data, _SPARK, where), _SPARK, where)
    algorithm = string(fields, "algorithm", _SPARK, where)
    if algorithm != ALGORITHM:
        raise Unsupported(
            "this kind of checksum is not known", where=where, found=algorithm, expected=ALGORITHM
        )
    value = whole_number(fields, "value", _SPARK, where)
    return SparkChecksum(value, whole_number(fields, "mainFileSize", _SPARK, where), fields)


@dataclass(frozen=True, slots=True)
class HadoopChecksum:
    """Hadoop's checksums of a file: one for each `step` bytes of it."""

    step: int
    values: tuple[int, ...]

    def mismatch(self, data: bytes) -> str | None:
        """What does not fit, in words, or None. Cost: two gigabytes a second."""
        expected = -(-len(data) // self.step)
        if expected != len(self.values):
            reach = len(self.values) * self.step
            return f"{len(data)} bytes where its checksums were taken of about {reach}"
        found = _each(data, self.step)
        if found == self.values:
            return None
        start = self.step * next(at for at, value in enumerate(found) if value != self.values[at])
        return f"bytes {start} to {min(start + self.step, len(data))} do not have their checksum"

    def render(self) -> bytes:
        """The file."""
        return _MAGIC + struct.pack(f">I{len(self.values)}I", self.step, *self.values)


@dataclass(slots=True)
class Comparison:
    """A file that is read in portions, against Hadoop's checksums of it.

    A portion that ends within a step counts as one that does not fit, unless it is the last.
    """

    sums: HadoopChecksum
    _seen: int = field(default=0, init=False)
    _fits: bool = field(default=True, init=False)

    def see(self, portion: bytes) -> None:
        """Compare what comes next."""
        found = _each(portion, self.sums.step)
        self._fits = self._fits and found == self.sums.values[self._seen : self._seen + len(found)]
        self._seen += len(found)

    @property
    def fits(self) -> bool:
        """Whether all that was seen is all that there are checksums of."""
        return self._fits and self._seen == len(self.sums.values)


def hadoop_checksum(data: bytes, step: int = 512) -> HadoopChecksum:
    """Work out what Hadoop would write beside these bytes."""
    return HadoopChecksum(step, _each(data, step))


def _each(data: bytes, step: int) -> tuple[int, ...]:
    view = memoryview(data)
    return tuple([crc32(view[start : start + step]) for start in range(0, len(data), step)])


def parse_hadoop_checksum(data: bytes, where: str) -> HadoopChecksum:
    """Read `.<name>.crc`.

    Raises:
        Corrupt: Hadoop cannot have written it.
    """
    if len(data) < _HEAD or data[:4] != _MAGIC or len(data) % 4:
        raise damaged(_HADOOP, where, f"{len(data)} bytes that begin with {data[:4]!r}", f"{_MAGIC!r}")
    step, *values = struct.unpack(f">{len(data) // 4 - 1}I", data[4:])
    if step == 0:
        raise damaged(_HADOOP, where, "checksums of 0 bytes each")
    return HadoopChecksum(step, tuple(values))
