"""Describe the plan and the sources of a streaming frame, equally for equal code.

Spark prints a plan with column numbers of this process, and hides the options of sources. This module removes
the numbers and reads the options.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast.engine.connect import is_connect
from holdfast.errors import Invalid
from holdfast.formats.logs.notes import PlanSource, PlanStep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


# Leaves of a plan that represent a source; nothing else streams into a plan made with PySpark.
RELATION: Final = "StreamingRelation"
RELATION_V2: Final = "StreamingRelationV2"
RELATIONS: Final = (RELATION, RELATION_V2)

_MOST_FIELDS: Final = 100_000
_LINE = re.compile(r"((?:[: ] {2})*)(?:\+- |:- )(.*)", re.DOTALL)
_STREAMS: Final = "~"
# Spark marks nodes that lack an input or a type, as many do once their columns have lost their names.
_MARKS: Final = "~!'"
_STATEFUL = re.compile(
    r"Aggregate|Deduplicate\w*|Distinct|TransformWithState\w*|FlatMapGroups\w*WithState|"
    r"ApplyInPandasWithState\w*|GlobalLimit"
)
# What does nothing to rows; the plan without names of columns lacks some of them.
_TRANSPARENT: Final = ("SubqueryAlias", "View", "CollectMetrics")

# What differs from process to process: an object's hash, a watermark's id.
_PASSING = re.compile(r"@[0-9a-f]{4,}|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b,? ?|-T\d+ms\b")
_NUMBER = re.compile(r"#\d+L?")

_SECRET = re.compile(r"secret|password|passwd|token|access.?key|jaas|credential", re.IGNORECASE)
# The same inside of a value: a login in an address, a word in a connection string.
_LOGIN = re.compile(r"//[^/@\s]+@")
_WORD = re.compile(
    r"((?:secret|password|passwd|pwd|token|access.?key|credential|sig)\w*\s*=\s*)[^&;,\s]+", re.IGNORECASE
)
REDACTED: Final = "(left out)"
# An option that differs from process to process: by which file a source of ticks is told of its query.
IDLE_PLACE: Final = "holdfast_place"


def describe(frame: DataFrame) -> tuple[tuple[PlanSource, ...], tuple[PlanStep, ...]] | None:
    """Return the sources and steps of a streaming frame; None if Spark's internals do not show them.

    Reads the plan, and runs nothing.
    """
    from py4j.protocol import Py4JError

    if is_connect(frame):
        return None
    try:
        return sources_of(frame), steps_of(frame)
    except (Py4JError, TypeError, ValueError):
        return None


def sources_of(frame: DataFrame) -> tuple[PlanSource, ...]:
    """Return the sources of a frame, in the order of Spark's numbers."""
    return tuple(_source(relation, number) for number, relation in enumerate(relations(frame)))


def steps_of(frame: DataFrame) -> tuple[PlanStep, ...]:
    """Return the steps of a frame, the last one first."""
    plan: Any = frame._jdf.queryExecution().analyzed()
    named = [line for line in _lines(plan) if line[2] not in _TRANSPARENT]
    bare = [line for line in _lines(plan.canonicalized()) if line[2] not in _TRANSPARENT]
    if [line[2] for line in named] != [line[2] for line in bare]:
        bare = [(depth, streaming, kind, _NUMBER.sub("", text)) for depth, streaming, kind, text in named]
    streams = _streaming_inputs(named)
    return tuple(
        PlanStep(
            kind=kind,
            text=_NUMBER.sub("", _steady(text)),
            bare=_steady(other[3]),
            stateful=streaming and (_STATEFUL.fullmatch(kind) is not None or (kind == "Join" and inputs > 1)),
        )
        for (_, streaming, kind, text), other, inputs in zip(named, bare, streams, strict=True)
        if kind not in RELATIONS
    )


def relations(frame: DataFrame) -> list[Any]:
    """Return the leaves of a frame's plan that represent its sources, each once."""
    leaves: Any = frame._jdf.queryExecution().analyzed().collectLeaves()
    found: list[Any] = []
    for at in range(leaves.size()):
        leaf = leaves.apply(at)
        if leaf.isStreaming() and not any(leaf.equals(known) for known in found):
            found.append(leaf)
    return found


def name_of(relation: Any) -> str | None:
    """Return the name of a source in the query, if it has one."""
    text = str(relation.sourceIdentifyingName().toString())
    found = re.fullmatch(r'(?:name=)?"?([A-Za-z0-9_]+)"?', text)
    return found[1] if found else None


def redacted(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options without secrets, sorted by name."""
    return {
        key: REDACTED if _SECRET.search(key) else _WORD.sub(rf"\1{REDACTED}", _LOGIN.sub("//", value))
        for key, value in sorted(options.items())
        if key.lower() != IDLE_PLACE
    }


def plain_map(given: Any) -> dict[str, str]:
    """Return a Scala map as a dict with keys in lower case."""
    pairs = given.iterator()
    found: dict[str, str] = {}
    while pairs.hasNext():
        pair = pairs.next()
        found[str(pair._1()).lower()] = str(pair._2())
    return found


def _source(relation: Any, number: int) -> PlanSource:
    schema: Any = relation.schema()
    fields = [schema.apply(at) for at in range(schema.length())]
    if relation.nodeName() == RELATION:
        source = relation.dataSource()
        kind, options = str(source.className()), plain_map(source.options())
    else:
        kind = str(relation.sourceName())
        options = {str(key): str(value) for key, value in relation.extraOptions().items()}
        if relation.identifier().isDefined():
            options["table"] = str(relation.identifier().get().toString())
    return PlanSource(
        name=name_of(relation) or str(number),
        kind=kind,
        options=redacted(options),
        columns={str(field.name()): str(field.dataType().sql()) for field in fields},
    )


def _lines(plan: Any) -> list[tuple[int, bool, str, str]]:
    """Return the nodes of a plan: depth, True if rows stream through it, kind, and description."""
    found: list[tuple[int, bool, str, str]] = []
    for number, line in enumerate(_tree(plan).split("\n")):
        match = _LINE.fullmatch(line)
        if number and match is None:
            # A text in the plan goes over several lines.
            if line and found:
                depth, streaming, kind, text = found[-1]
                found[-1] = (depth, streaming, kind, f"{text}\n{line}")
            continue
        depth, node = (0, line) if match is None else (len(match[1]) // 3 + 1, match[2])
        streaming = node.startswith((_STREAMS, RELATION))
        kind, _, text = node.lstrip(_MARKS).partition(" ")
        found.append((depth, streaming, kind, text))
    return found


def _tree(plan: Any) -> str:
    return str(plan.treeString(False, False, _MOST_FIELDS, False, False))


def _streaming_inputs(lines: list[tuple[int, bool, str, str]]) -> list[int]:
    """Count the streaming inputs of each node."""
    counts = [0] * len(lines)
    for at, above in _parents(lines):
        counts[above] += lines[at][1]
    return counts


def _parents(lines: list[tuple[int, bool, str, str]]) -> Iterator[tuple[int, int]]:
    path: list[int] = []
    for at, (depth, *_) in enumerate(lines):
        # What is left out does not break the path: its own inputs count for the node above it.
        while path and lines[path[-1]][0] >= depth:
            path.pop()
        if path:
            yield at, path[-1]
        path.append(at)


def _steady(text: str) -> str:
    return _PASSING.sub("", text).strip()


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
    """Return the streaming sources of a frame in the order of its plan, without lookup tables."""
    plan: Any = frame._jdf.queryExecution().analyzed()
    leaves = plan.collectLeaves()
    found = (source_of(leaves.apply(number)) for number in range(leaves.size()))
    return tuple(source for source in found if source is not None)


@dataclass(frozen=True, slots=True)
class TickLines:
    """The offset-log lines of a source of ticks and of the sources that it watches.

    Attributes:
        place: The file with the start parameters of the source of ticks.
        own: The index of its line.
        watched: The indexes of the lines of the watched sources.
    """

    place: str
    own: int
    watched: tuple[int, ...]


def tick_lines(frame: DataFrame) -> tuple[TickLines, ...]:
    """Return the sources of ticks in a frame, each once.

    A source of ticks directly follows the sources that it watches in the plan, and the offset log has a line
    for each streaming leaf, in the order of the plan.
    """
    found: dict[str, TickLines] = {}
    for number, source in enumerate(sources_in(frame)):
        if source.kind == IDLE_TICKS:
            place, count = source.options[IDLE_PLACE], int(source.options[IDLE_SOURCES])
            found.setdefault(place, TickLines(place, number, tuple(range(number - count, number))))
    return tuple(found.values())


def source_of(leaf: Any) -> SourceRead | None:
    """Return the stream that a leaf of a plan reads; None for a lookup table."""
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


_KAFKA_PLACE = ("topic", "partition", "offset")


def sources_once(frame: DataFrame) -> tuple[tuple[SourceRead, StructType], ...]:
    """Return the sources of a streaming frame in the order of its offset log, each with its columns."""
    from pyspark.sql.types import StructType

    found = []
    for relation in relations(frame):
        read = source_of(relation)
        if read is not None:
            found.append((read, StructType.fromJson(json.loads(relation.schema().json()))))
    return tuple(found)


def like_source(history: DataFrame, schema: StructType, where: str) -> DataFrame:
    """Select the columns of a source from a batch frame, in the source's order.

    Raises:
        Invalid: A column is missing or has a different type.
    """
    from pyspark.sql import functions as F  # noqa: N812 - needs Spark

    if history.isStreaming:
        raise Invalid(
            "the history is a stream, not a batch frame",
            code="HF-E2183",
            where=where,
            hint="read the history with spark.read",
        )
    has = {field.name: field.dataType for field in history.schema}
    for field in schema:
        found = has.get(field.name)
        if found is None or found.simpleString() != field.dataType.simpleString():
            raise Invalid(
                "the columns of the history differ from those of the stream's source",
                code="HF-E2184",
                where=where,
                found=f"no column {field.name}" if found is None else f"{field.name} {found.simpleString()}",
                expected=f"{field.name} {field.dataType.simpleString()}",
                hint="read the history with the schema of the stream: spark.read.schema(…)",
            )
    return history.select(*[F.col(f"`{field.name.replace('`', '``')}`") for field in schema])


def changed_ms(frame: DataFrame, paths: Iterable[str]) -> list[tuple[str, int]]:
    """Return the modification times of files, as a file source records them.

    Raises:
        Invalid: A file is missing.
    """
    from py4j.protocol import Py4JJavaError

    jvm: Any = frame.sparkSession._jvm
    conf: Any = frame.sparkSession._jsparkSession.sessionState().newHadoopConf()
    found = []
    for path in paths:
        place = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(path) if ":/" in path else path)
        try:
            status = place.getFileSystem(conf).getFileStatus(place)
        except Py4JJavaError as error:
            raise Invalid(
                "a file to mark as read does not exist",
                code="HF-E2185",
                where=path,
                hint="give the paths of the files that the history was read from, without deleted files",
            ) from error
        found.append((str(status.getPath().toUri().toString()), int(status.getModificationTime())))
    return found


def last_of_kafka(history: DataFrame) -> list[tuple[str, int, int]] | None:
    """Return topic, partition and largest offset of Kafka rows; None if the frame lacks these columns."""
    from pyspark.sql import functions as F  # noqa: N812 - needs Spark

    if any(name not in history.columns for name in _KAFKA_PLACE):
        return None
    rows = history.groupBy("topic", "partition").agg(F.max("offset").alias("last")).collect()
    return [(str(row["topic"]), int(row["partition"]), int(row["last"])) for row in rows]
