"""The description of a streaming frame's plan and sources, which is equal for equal code.

Spark prints a plan with column numbers of this process, and hides the options of sources. This module removes
the numbers and adds the options.
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


# The leaves of a plan that are sources; plans built with PySpark have no other streaming leaves.
RELATION: Final = "StreamingRelation"
RELATION_V2: Final = "StreamingRelationV2"
RELATIONS: Final = (RELATION, RELATION_V2)

_MOST_FIELDS: Final = 100_000
_LINE = re.compile(r"((?:[: ] {2})*)(?:\+- |:- )(.*)", re.DOTALL)
_STREAMS: Final = "~"
# Spark's mark on nodes without an input or a type; many nodes get it when their columns lose their names.
_MARKS: Final = "~!'"
_STATEFUL = re.compile(
    r"Aggregate|Deduplicate\w*|Distinct|TransformWithState\w*|FlatMapGroups\w*WithState|"
    r"ApplyInPandasWithState\w*|GlobalLimit"
)
# Nodes that do not change rows; the plan without column names lacks some of them.
_TRANSPARENT: Final = ("SubqueryAlias", "View", "CollectMetrics")

# Text that differs between processes: the hash of an object, the id of a watermark.
_PASSING = re.compile(r"@[0-9a-f]{4,}|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b,? ?|-T\d+ms\b")
_NUMBER = re.compile(r"#\d+L?")

_SECRET = re.compile(r"secret|password|passwd|token|access.?key|jaas|credential", re.IGNORECASE)
# The same within a value: a login in an address, a password in a connection string.
_LOGIN = re.compile(r"//[^/@\s]+@")
_WORD = re.compile(
    r"((?:secret|password|passwd|pwd|token|access.?key|credential|sig)\w*\s*=\s*)[^&;,\s]+", re.IGNORECASE
)
REDACTED: Final = "(left out)"
# An option that differs between processes: the file with the start parameters of a source of ticks.
IDLE_PLACE: Final = "holdfast_place"


def describe(frame: DataFrame) -> tuple[tuple[PlanSource, ...], tuple[PlanStep, ...]] | None:
    """Return the sources and steps of a streaming frame, or None if they cannot be read from this version of
    Spark.

    The function reads the plan and runs no job.
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
    """Return the steps of a frame's plan, the last one first."""
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
    """Return the leaves of a frame's plan that are sources, without duplicates."""
    leaves: Any = frame._jdf.queryExecution().analyzed().collectLeaves()
    found: list[Any] = []
    for at in range(leaves.size()):
        leaf = leaves.apply(at)
        if leaf.isStreaming() and not any(leaf.equals(known) for known in found):
            found.append(leaf)
    return found


def name_of(relation: Any) -> str | None:
    """Return the name of a source in the query; None without one, and always before Spark 4.2."""
    from py4j.protocol import Py4JError

    try:
        text = str(relation.sourceIdentifyingName().toString())
    except Py4JError:
        return None
    found = re.fullmatch(r'(?:name=)?"?([A-Za-z0-9_]+)"?', text)
    return found[1] if found else None


def redacted(options: Mapping[str, str]) -> dict[str, str]:
    """Return options sorted by name, with secrets replaced."""
    return {
        key: REDACTED if _SECRET.search(key) else _WORD.sub(rf"\1{REDACTED}", _LOGIN.sub("//", value))
        for key, value in sorted(options.items())
        if key.lower() != IDLE_PLACE
    }


def plain_map(given: Any) -> dict[str, str]:
    """Return a Scala map as a dict with lower-case keys."""
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
    """Return the nodes of a plan: depth, whether rows stream through the node, kind, and description."""
    found: list[tuple[int, bool, str, str]] = []
    for number, line in enumerate(_tree(plan).split("\n")):
        match = _LINE.fullmatch(line)
        if number and match is None:
            # A string in the plan may have several lines.
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
    from py4j.protocol import Py4JError

    try:
        return str(plan.treeString(False, False, _MOST_FIELDS, False, False))
    except Py4JError:  # Spark 4.0 and older have no option for output columns
        return str(plan.treeString(False, False, _MOST_FIELDS, False))


def _streaming_inputs(lines: list[tuple[int, bool, str, str]]) -> list[int]:
    """Return the number of streaming inputs of each node."""
    counts = [0] * len(lines)
    for at, above in _parents(lines):
        counts[above] += lines[at][1]
    return counts


def _parents(lines: list[tuple[int, bool, str, str]]) -> Iterator[tuple[int, int]]:
    path: list[int] = []
    for at, (depth, *_) in enumerate(lines):
        # A skipped node is transparent: its inputs count for the node above it.
        while path and lines[path[-1]][0] >= depth:
            path.pop()
        if path:
            yield at, path[-1]
        path.append(at)


def _steady(text: str) -> str:
    return _PASSING.sub("", text).strip()


# Spark's name of its file source, whatever the format of the files.
FILES: Final = "files"
# The source of ticks that `holdfast.watermarked` adds to a stream, and the number of sources it watches.
IDLE_TICKS: Final = "holdfast_idle"
IDLE_SOURCES: Final = "sources"
_FILE_SOURCE: Final = "FileSource["


@dataclass(frozen=True, slots=True)
class SourceRead:
    """A source of a streaming frame, with its options.

    Attributes:
        kind: The kind of source: `files`, or Spark's name such as `kafka`, `delta`, `rate` or `socket`.
        options: The options of the source, with lower-case names.
    """

    kind: str
    options: Mapping[str, str]


def sources_in(frame: DataFrame) -> tuple[SourceRead, ...]:
    """Return the streaming sources of a frame in the order of its plan, without batch tables."""
    plan: Any = frame._jdf.queryExecution().analyzed()
    leaves = plan.collectLeaves()
    found = (source_of(leaves.apply(number)) for number in range(leaves.size()))
    return tuple(source for source in found if source is not None)


@dataclass(frozen=True, slots=True)
class TickLines:
    """The lines of the offset log for a source of ticks and for the sources that it watches.

    Attributes:
        place: The file with the start parameters of the source of ticks.
        own: The index of the line of the source of ticks.
        watched: The indices of the lines of the watched sources.
    """

    place: str
    own: int
    watched: tuple[int, ...]


def tick_lines(frame: DataFrame) -> tuple[TickLines, ...]:
    """Return the sources of ticks in a frame, each once.

    In the plan a source of ticks directly follows the sources that it watches, and the offset log has a line
    for each streaming leaf, in the order of the plan.
    """
    found: dict[str, TickLines] = {}
    for number, source in enumerate(sources_in(frame)):
        if source.kind == IDLE_TICKS:
            place, count = source.options[IDLE_PLACE], int(source.options[IDLE_SOURCES])
            found.setdefault(place, TickLines(place, number, tuple(range(number - count, number))))
    return tuple(found.values())


def source_of(leaf: Any) -> SourceRead | None:
    """Return the stream that a leaf of a plan reads, or None for a batch table."""
    name = str(leaf.getClass().getSimpleName())
    if name == RELATION:
        called = str(leaf.sourceName())
        options = plain_map(leaf.dataSource().options())
        return SourceRead(FILES if called.startswith(_FILE_SOURCE) else called, options)
    if name == RELATION_V2:
        return SourceRead(str(leaf.sourceName()), _plain(leaf.extraOptions().asCaseSensitiveMap()))
    # Any other source is a streaming leaf; unknown leaves must not be treated as tables.
    return SourceRead(name, {}) if leaf.isStreaming() else None


def _plain(given: Any) -> dict[str, str]:
    return {str(key).lower(): str(given[key]) for key in given}


_KAFKA_PLACE = ("topic", "partition", "offset")


def sources_once(frame: DataFrame) -> tuple[tuple[SourceRead, StructType], ...]:
    """Return the sources of a streaming frame in the order of its offset log, each with its schema."""
    from pyspark.sql.types import StructType

    found = []
    for relation in relations(frame):
        read = source_of(relation)
        if read is not None:
            found.append((read, StructType.fromJson(json.loads(relation.schema().json()))))
    return tuple(found)


def like_source(history: DataFrame, schema: StructType, where: str) -> DataFrame:
    """Select the columns of a source from a batch frame, in the order of the source.

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
    """Return the modification times of files in milliseconds, as recorded by a file source.

    Raises:
        Invalid: A file does not exist.
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
    """Return topic, partition and highest offset of Kafka rows, or None if the frame lacks these columns."""
    from pyspark.sql import functions as F  # noqa: N812 - needs Spark

    if any(name not in history.columns for name in _KAFKA_PLACE):
        return None
    rows = history.groupBy("topic", "partition").agg(F.max("offset").alias("last")).collect()
    return [(str(row["topic"]), int(row["partition"]), int(row["last"])) for row in rows]
