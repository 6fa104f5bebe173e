"""Tell what a query reads from, as its plan says it before it is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast.engine.plans.described import IDLE_PLACE, RELATION, RELATION_V2, plain_map

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# What Spark calls its source of files, whatever their format.
FILES: Final = "files"
# The source of ticks that `holdfast.watermarked` puts beside a stream, and how many sources it watches.
IDLE_TICKS: Final = "holdfast_idle"
IDLE_SOURCES: Final = "sources"
_FILE_SOURCE: Final = "FileSource["


@dataclass(frozen=True, slots=True)
class SourceRead:
    """A source of a streaming frame.

    Attributes:
        kind: `files`, or the name of the source: `kafka`, `delta`, `rate`, `socket` …
        options: Its options, their names in lower case.
    """

    kind: str
    options: Mapping[str, str]


def sources_in(frame: DataFrame) -> tuple[SourceRead, ...]:
    """The streaming sources of a frame, in the order of its plan, without tables that are looked up."""
    plan: Any = frame._jdf.queryExecution().analyzed()
    leaves = plan.collectLeaves()
    found = (source_of(leaves.apply(number)) for number in range(leaves.size()))
    return tuple(source for source in found if source is not None)


@dataclass(frozen=True, slots=True)
class TickLines:
    """Where the offset log of a query has a source of ticks, and the sources that it watches.

    Attributes:
        place: The file by which the source of ticks is told of its query.
        own: The number of its line.
        watched: The numbers of their lines.
    """

    place: str
    own: int
    watched: tuple[int, ...]


def tick_lines(frame: DataFrame) -> tuple[TickLines, ...]:
    """The sources of ticks in a frame, each once.

    A source of ticks stands in the plan right behind the sources that it watches, and the offset log has a
    line for each leaf that streams, in the order of the plan.
    """
    found: dict[str, TickLines] = {}
    for number, source in enumerate(sources_in(frame)):
        if source.kind == IDLE_TICKS:
            place, count = source.options[IDLE_PLACE], int(source.options[IDLE_SOURCES])
            found.setdefault(place, TickLines(place, number, tuple(range(number - count, number))))
    return tuple(found.values())


def source_of(leaf: Any) -> SourceRead | None:
    """What a leaf of a plan reads as a stream; None for a table that is looked up."""
    name = str(leaf.getClass().getSimpleName())
    if name == RELATION:
        called = str(leaf.sourceName())
        options = plain_map(leaf.dataSource().options())
        return SourceRead(FILES if called.startswith(_FILE_SOURCE) else called, options)
    if name == RELATION_V2:
        return SourceRead(str(leaf.sourceName()), _plain(leaf.extraOptions().asCaseSensitiveMap()))
    # Every other leaf of a streaming plan that is a source says so; unknown ones must not pass for tables.
    return SourceRead(name, {}) if leaf.isStreaming() else None


def _plain(given: Any) -> dict[str, str]:
    return {str(key).lower(): str(given[key]) for key in given}
