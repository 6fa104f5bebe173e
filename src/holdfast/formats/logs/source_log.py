"""The logs of sources: what a source notes for itself under `sources/`.

A file source lists each file that it has taken, entry by entry; every few entries one file named
`N.compact` repeats all before it. Kafka notes where it began, a rate source when. Each is a version line
and lines of JSON; Kafka puts a zero byte before the version.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from holdfast.formats.text import damaged, decoded, json_value, version_of

VERSIONS: Final = (1,)
DEFAULT_INTERVAL: Final = 10
_LONGEST_INTERVAL: Final = 100_000
_WHAT = "a source's log"


@dataclass(frozen=True, slots=True)
class SeenFile:
    """A file that a file source has taken, and the entry of its log that did so."""

    path: str
    timestamp_ms: int
    entry: int


@dataclass(frozen=True, slots=True)
class SourceLog:
    """One file of a source's log.

    Attributes:
        version: Always 1 so far.
        lines: What stands behind the version, line by line.
        zero: Whether a zero byte comes first.
    """

    version: int
    lines: tuple[str, ...]
    zero: bool = False

    def seen(self, where: str) -> tuple[SeenFile, ...]:
        """The files that a file source notes here; empty for other sources.

        Raises:
            Corrupt: Some lines name a file and others do not.
        """
        values = [json_value(line, _WHAT, where) for line in self.lines]
        files = [value for value in values if isinstance(value, dict) and "path" in value]
        if not files:
            return ()
        if len(files) != len(values):
            raise damaged(_WHAT, where, "lines of different kinds", "a file in each line")
        try:
            return tuple(
                SeenFile(str(file["path"]), int(file["timestamp"]), int(file["batchId"])) for file in files
            )
        except (KeyError, TypeError, ValueError) as error:
            raise damaged(_WHAT, where, f"a file without {error}", "path, timestamp and batchId") from error

    def render(self) -> bytes:
        """The file."""
        return b"\0" * self.zero + "\n".join([f"v{self.version}", *self.lines]).encode()

    def between(self, first: int, last: int, where: str) -> SourceLog:
        """The same log with these entries and those between them, for a copy that ends with the last.

        Raises:
            Corrupt: A line cannot be read.
        """
        lines = zip(self.lines, self.seen(where), strict=True)
        return replace(self, lines=tuple(line for line, seen in lines if first <= seen.entry <= last))


def parse_source(data: bytes, where: str) -> SourceLog:
    """Read a file of a source's log.

    Raises:
        Corrupt: Spark cannot have written it.
        Unsupported: Its version is newer than what is known here.
    """
    zero = data[:1] == b"\0"
    version_line, *lines = decoded(data[zero:], _WHAT, where).split("\n")
    version = version_of(version_line, VERSIONS, _WHAT, where)
    if not lines:
        raise damaged(_WHAT, where, "a version and nothing else", "what the source has noted")
    for number, line in enumerate(lines, start=2):
        json_value(line, _WHAT, f"{where}, line {number}")
    return SourceLog(version, tuple(lines), zero)


def compact_interval(compacted: Iterable[int]) -> int:
    """How many entries lie between two compacted ones, as Spark works it out from those that are there.

    Args:
        compacted: The numbers of the compacted entries that are still there.
    """
    newest = sorted(compacted, reverse=True)
    if not newest:
        return DEFAULT_INTERVAL
    if len(newest) > 1:
        return newest[0] - newest[1]
    entries = newest[0] + 1
    most = min(entries // 2, _LONGEST_INTERVAL)
    divisors = (interval for interval in range(DEFAULT_INTERVAL, most + 1) if entries % interval == 0)
    return next(divisors, entries)
