"""Describe a streaming frame's plan in words that are the same for the same code, in any process.

Spark prints a plan with the numbers that it gave to columns in this process, and hides what a source reads.
Here the numbers are taken out, and sources are asked for their options.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from holdfast.engine.connect.classic_only import is_connect
from holdfast.formats.logs.plan_note import PlanSource, PlanStep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Leaves of a plan that stand for a source; nothing else streams into a plan made with PySpark.
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
    """The sources and steps of a streaming frame; None where this Spark's internals do not tell.

    Reads its plan, and runs nothing.
    """
    from py4j.protocol import Py4JError

    if is_connect(frame):
        return None
    try:
        return sources_of(frame), steps_of(frame)
    except (Py4JError, TypeError, ValueError):
        return None


def sources_of(frame: DataFrame) -> tuple[PlanSource, ...]:
    """The sources of a frame, in the order in which Spark numbers them."""
    return tuple(_source(relation, number) for number, relation in enumerate(relations(frame)))


def steps_of(frame: DataFrame) -> tuple[PlanStep, ...]:
    """What a frame does, the last step first."""
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
    """The leaves of a frame's plan that stand for its sources, each once."""
    leaves: Any = frame._jdf.queryExecution().analyzed().collectLeaves()
    found: list[Any] = []
    for at in range(leaves.size()):
        leaf = leaves.apply(at)
        if leaf.isStreaming() and not any(leaf.equals(known) for known in found):
            found.append(leaf)
    return found


def name_of(relation: Any) -> str | None:
    """The name that the query gave a source, if it did."""
    text = str(relation.sourceIdentifyingName().toString())
    found = re.fullmatch(r'(?:name=)?"?([A-Za-z0-9_]+)"?', text)
    return found[1] if found else None


def redacted(options: Mapping[str, str]) -> dict[str, str]:
    """Options without what must not be written down, by name."""
    return {
        key: REDACTED if _SECRET.search(key) else _WORD.sub(rf"\1{REDACTED}", _LOGIN.sub("//", value))
        for key, value in sorted(options.items())
        if key.lower() != IDLE_PLACE
    }


def plain_map(given: Any) -> dict[str, str]:
    """A map of Scala's whose keys differ in more than case."""
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
    """The nodes of a plan: depth, whether rows stream through it, kind, and what it does."""
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
    """How many inputs of each node stream."""
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
