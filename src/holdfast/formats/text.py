"""The text formats of checkpoint files: version lines, compact JSON, and errors for malformed text.

A length stated in a file is not trusted: decompressed bytes are counted, and a stated length is accepted only
if the compressed bytes can contain it.

The content of a checkpoint's files is not trusted either. A name that becomes part of a path must be a plain
name, so that no file outside the checkpoint is read, linked or written.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any, Final

from holdfast.errors import Corrupt, Unsupported

# The decompressed size that any file may have. Spark's own state streams have four to thirty times their
# packed size.
FREE_BYTES: Final = 64 << 20
# Above it, the ratio to the packed size. Zstandard reaches 10,000 on repeated bytes, but rows of state do
# not.
RATIO: Final = 1024
# LZ4 packs at most 255 bytes into one, Snappy at most 64 into three; both also have bytes of their own.
LZ4_RATIO: Final = 255
SNAPPY_RATIO: Final = 22
# The maximum of a JSON document or line: the offsets of a million Kafka partitions take about 20 MB.
JSON_CHARACTERS: Final = 64 << 20
# The maximum nesting. A nested type takes a few levels; Python reads a thousand, minus those of its own
# stack.
JSON_LEVELS: Final = 200
# A snapshot's zip file has a few small files of RocksDB, and a list of data files of about 150 bytes each.
ZIP_ENTRIES: Final = 4096
ZIP_BYTES: Final = 256 << 20
# Spark runs a task for each partition in each batch, so a larger number is not practical.
PARTITIONS: Final = 100_000
# The maximum of Java's `Long`, the type of batch ids.
HIGHEST_NUMBER: Final = (1 << 63) - 1


class Allowance:
    """The limit on decompressed bytes for one file.

    Args:
        packed_bytes: The compressed size of the file.
        what: The kind of file, for error messages.
        where: The file, for error messages.
    """

    __slots__ = ("_left", "_limit", "_what", "_where")

    def __init__(self, packed_bytes: int, what: str, where: str) -> None:
        self._limit = max(FREE_BYTES, RATIO * packed_bytes)
        self._left = self._limit
        self._what = what
        self._where = where

    def take(self, size: int) -> int:
        """Count decompressed bytes against the limit, before or after decompression, and return their number.

        Raises:
            Corrupt: The limit is exceeded.
        """
        if size < 0 or size > self._left:
            raise Corrupt(
                f"{self._what} exceeds the size limit when decompressed",
                code="HF-E6028",
                where=self._where,
                found=f"more than {self._limit:,} bytes",
                expected=f"at most {RATIO:,} times the compressed size or {FREE_BYTES:,} bytes, if greater",
                hint="do not trust the source of this file: Spark does not write such files",
            )
        self._left -= size
        return size


_SHOWN = 80
# Half of a surrogate pair, which JSON can escape but which cannot be encoded.
_HALVES = re.compile(r"\\u[dD][89a-fA-F]")


def damaged(what: str, where: str, found: object, expected: str | None = None) -> Corrupt:
    """Return the error for bytes that are not in the format that Spark writes.

    Args:
        what: The kind of file, for example "the offset log".
        where: The file, with the line if it helps.
        found: The content that was found; long text is truncated.
        expected: The expected content, or None.
    """
    shown = found if isinstance(found, str) else repr(found)
    shown = shown if len(shown) <= _SHOWN else shown[: _SHOWN - 1] + "…"
    return Corrupt(
        f"{what} is damaged",
        code="HF-E6029",
        hint="list all damage with `holdfast checkpoint verify CHECKPOINT` or `holdfast savepoint verify SP`",
        where=where,
        found=shown,
        expected=expected,
    )


def decoded(data: bytes, what: str, where: str) -> str:
    """Decode bytes as UTF-8 text.

    Raises:
        Corrupt: The bytes are not valid UTF-8.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise damaged(what, where, f"invalid text at byte {error.start}", "UTF-8") from error


def version_of(line: str, known: Sequence[int], what: str, where: str) -> int:
    """Return the number in a version line such as `v1`.

    Raises:
        Corrupt: The line is not a version line.
        Unsupported: The version is not one of the known ones.
    """
    number = line[1:]
    if not (line.startswith("v") and number.isascii() and number.isdigit() and number[0] != "0"):
        raise damaged(what, where, repr(line[:_SHOWN]), f"a version line, such as `v{known[0]}`")
    if number not in map(str, known):
        raise Unsupported(
            f"unknown version of {what}",
            code="HF-E7080",
            where=where,
            found=line[:_SHOWN],
            expected=", ".join(f"v{version}" for version in known),
            hint="upgrade Holdfast if a newer Spark wrote the file; otherwise restore the file from a copy",
        )
    return int(number)


def json_object(text: str, what: str, where: str) -> dict[str, Any]:
    """Parse a JSON object, whose keys keep their order.

    Raises:
        Corrupt: The text is not a JSON object.
    """
    value = json_value(text, what, where)
    if not isinstance(value, dict):
        raise damaged(what, where, repr(text), "a JSON object")
    return value


def json_value(text: str, what: str, where: str) -> Any:
    """Parse a JSON value.

    Raises:
        Corrupt: The text is not JSON, has a duplicate key, or is longer or nested deeper than Spark writes.
    """
    if len(text) > JSON_CHARACTERS:
        raise damaged(what, where, f"{len(text):,} characters", f"at most {JSON_CHARACTERS:,} characters")
    try:
        value = json.loads(text, object_pairs_hook=_once, parse_constant=_refuse, parse_float=_finite)
        if _HALVES.search(text):
            compact(value).encode()
        # A caller that parses a part of it again may have less stack left.
        if text.count("[") + text.count("{") > JSON_LEVELS and _is_deeper(value, JSON_LEVELS):
            raise ValueError("nested too deeply")
    except (ValueError, RecursionError) as error:
        raise damaged(what, where, repr(text[:_SHOWN]), "JSON") from error
    return value


def foreign_json(data: str | bytes) -> Any:
    """Parse JSON from an untrusted source.

    Raises:
        ValueError: The text is not JSON, is nested too deeply, or has a number that is not finite.
    """
    try:
        return json.loads(data, parse_constant=_refuse, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def whole_number(fields: dict[str, Any], key: str, what: str, where: str, default: int | None = None) -> int:
    """Return an integer field.

    Raises:
        Corrupt: The field is missing and has no default, or is not an integer.
    """
    value = fields.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > HIGHEST_NUMBER:
        raise damaged(what, where, f"`{key}` is {value!r}", "a whole number")
    return value


def string(fields: dict[str, Any], key: str, what: str, where: str) -> str:
    """Return a string field.

    Raises:
        Corrupt: The field is missing or is not a string.
    """
    value = fields.get(key)
    if not isinstance(value, str):
        raise damaged(what, where, f"`{key}` is {value!r}", "text")
    return value


def compact(value: Any) -> str:
    """Return a value as JSON in Spark's style: without spaces, and with only necessary escapes."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _is_deeper(value: Any, levels: int) -> bool:
    """Return whether lists and objects are nested deeper than `levels`."""
    level: list[Any] = [[value]]
    for _ in range(levels + 1):
        parts = (part.values() if isinstance(part, dict) else part for part in level)
        level = [inner for part in parts for inner in part if isinstance(inner, (dict, list))]
        if not level:
            return False
    return True


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("duplicate key")
    return fields


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a finite number")
    return number


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


# The maximum lengths of a name and of a path in common file systems.
NAME_BYTES: Final = 255
PATH_BYTES: Final = 4096


def is_plain(name: str) -> bool:
    """Return whether a name is a single valid file name, without separators and not `.` or `..`."""
    if not name or name in (".", "..") or not name.isprintable():
        return False
    return "/" not in name and "\\" not in name and len(name.encode("utf-8", "replace")) <= NAME_BYTES


def plain_name(name: str, what: str, where: str) -> str:
    """Return a file name after checking that it is a plain one.

    Args:
        name: The name as read from a file.
        what: The kind of file, for example "a snapshot".
        where: The file, for error messages.

    Raises:
        Corrupt: The name is not a plain file name.
    """
    if not is_plain(name):
        raise _elsewhere(name, what, where, "a plain file name")
    return name


def inner_path(path: str, what: str, where: str) -> str:
    """Return a relative path after checking that it stays below its directory.

    Raises:
        Corrupt: The path is absolute, leaves its directory, or has a part that is not a plain name.
    """
    if len(path.encode("utf-8", "replace")) > PATH_BYTES or not all(map(is_plain, path.split("/"))):
        raise _elsewhere(path, what, where, "a path below the checkpoint")
    return path


def _elsewhere(name: str, what: str, where: str, expected: str) -> Corrupt:
    return damaged(what, where, f"the name {name!r}", expected)
