"""Tell what a query reads from, as its plan says it before it is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast.engine.plans.described import RELATION, RELATION_V2, plain_map

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# What Spark calls its source of files, whatever their format.
FILES: Final = "files"
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
