"""What a call on a frame, a reader or a writer gives."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from holdfast.advice.source.column_calls import Arguments, columns_of, sql
from holdfast.advice.source.values import (
    UNKNOWN,
    Columns,
    Const,
    Frame,
    Grouped,
    OwnStream,
    Pairs,
    Reader,
    Sequence,
    Stateful,
    Watermark,
    Writer,
    unique,
)

# A frame stays what it is.
_SAME: Final = frozenset(
    [
        "filter",
        "where",
        "repartition",
        "repartitionByRange",
        "coalesce",
        "persist",
        "cache",
        "unpersist",
        "hint",
        "alias",
        "drop",
        "dropna",
        "fillna",
        "na",
        "replace",
        "sample",
        "sort",
        "orderBy",
        "sortWithinPartitions",
        "observe",
        "checkpoint",
        "localCheckpoint",
        "limit",
        "offset",
        "describe",
        "colRegex",
        "fill",
    ]
)
# What columns there are behind these is not followed.
_RESHAPING: Final = frozenset(["toDF", "mapInPandas", "mapInArrow", "unpivot", "melt"])
_SELECTING: Final = frozenset(
    ["select", "selectExpr", "withColumn", "withColumns", "withColumnRenamed", "withColumnsRenamed"]
)
_UNIONS: Final = frozenset(("union", "unionAll", "unionByName"))
_DEDUPING: Final = frozenset(
    ("dropDuplicates", "drop_duplicates", "distinct", "dropDuplicatesWithinWatermark")
)
_GROUPING: Final = frozenset(("groupBy", "groupby", "rollup", "cube"))
_AGGREGATES: Final = frozenset(("agg", "count", "sum", "avg", "mean", "min", "max"))
_LOADS: Final = frozenset(["load", "table", "json", "csv", "parquet", "orc", "text"])
_CHANCE: Final = frozenset(("rand", "randn", "uuid", "random", "monotonically_increasing_id"))
_WINDOWS: Final = frozenset(("window", "session_window", "window_time"))
# Operators of Holdfast's that bound their state by the time that they are given.
_BOUNDED: Final = frozenset(("dedupe", "sessions", "running"))
FRAME_METHODS: Final = (
    _SAME
    | _RESHAPING
    | _SELECTING
    | _UNIONS
    | _GROUPING
    | _DEDUPING
    | {"withWatermark", "join", "crossJoin", "transform"}
)


def of_frame(
    frame: Frame, method: str, given: Arguments, node: ast.Call, run: Callable[[Any, Arguments], Any]
) -> Any:
    """What a method of a frame gives.

    Args:
        frame: The frame.
        method: The method's name.
        given: Its arguments.
        node: The call.
        run: Evaluates a function of the file with arguments.
    """
    if method == "transform":
        made = run(given.get(0, "func"), Arguments((frame, *given.positional[1:]), given.named, given.known))
        return made if isinstance(made, Frame) else replace(frame, known=False, made_by=node)
    if method in _SAME:
        return replace(frame, made_by=node)
    if method in _RESHAPING:
        return _reshaped(frame, node)
    step = _STEPS.get(method)
    return UNKNOWN if step is None else step(frame, method, given, node)


def _reshaped(frame: Frame, node: ast.Call) -> Frame:
    """A frame with other columns: which of them carries the event time cannot be told."""
    return replace(frame, known=frame.known and not frame.watermarks, made_by=node)


def _timed(frame: Frame, _method: str, given: Arguments, node: ast.Call) -> Frame:
    return watermarked(frame, given.text(0, "eventTime"), given.text(1, "delayThreshold"), node)


def _grouped(frame: Frame, _method: str, given: Arguments, _node: ast.Call) -> Grouped:
    return Grouped(frame, given.columns())


def _over_all(frame: Frame, method: str, given: Arguments, node: ast.Call) -> Frame:
    return aggregated(Grouped(frame, Columns()), method, given, node)


def _deduplicated(frame: Frame, method: str, given: Arguments, node: ast.Call) -> Frame:
    kind = "dedupe-within" if method == "dropDuplicatesWithinWatermark" else "dedupe"
    return with_operator(frame, kind, node, method, keys=given.columns(), given=given)


def _united(frame: Frame, _method: str, given: Arguments, node: ast.Call) -> Frame:
    other = given.get(0, "other")
    both = frame.with_other(other) if isinstance(other, Frame) else replace(frame, known=False)
    return replace(both, made_by=node)


def watermarked(frame: Frame, column: str | None, delay: str | None, node: ast.AST) -> Frame:
    """A frame with one more watermark."""
    name = None if column is None else column.lower()
    added = frame.time_columns | ({name} if name is not None else frozenset())
    mark = Watermark(name, delay, node)
    return replace(frame, watermarks=unique((*frame.watermarks, mark)), time_columns=added, made_by=node)


def selected_from(frame: Frame, method: str, given: Arguments, node: ast.Call) -> Frame:
    """A selection, or columns beside those that are there."""
    if not given.known and frame.watermarks:
        return _reshaped(frame, node)
    time, chance = set(frame.time_columns), set(frame.random_columns)
    for name, made in _aliases(method, given):
        if made.calls & _CHANCE or made.used & frame.random_columns:
            chance.add(name)
        if made.names & frame.time_columns or (made.calls & _WINDOWS and not made.calls - _WINDOWS):
            time.add(name)
        elif made.known:
            time.discard(name)
    return replace(frame, time_columns=frozenset(time), random_columns=frozenset(chance), made_by=node)


def _aliases(method: str, given: Arguments) -> list[tuple[str, Columns]]:
    """The names that a selection gives, each with its expression."""
    if method == "withColumn":
        name = given.text(0, "colName")
        return [] if name is None else [(name.lower(), columns_of(given.get(1, "col")))]
    if method == "withColumnRenamed":
        old, new = given.text(0, "existing"), given.text(1, "new")
        return [] if old is None or new is None else [(new.lower(), columns_of(Const(old.lower())))]
    values = [*given.positional, *given.named.values()]
    pairs = [pair for value in values if isinstance(value, Pairs) for pair in value.items]
    if method == "withColumnsRenamed":
        return [
            (new.value.lower(), columns_of(Const(old.lower())))
            for old, new in pairs
            if isinstance(new, Const) and isinstance(new.value, str)
        ]
    if method == "withColumns":
        return [(name.lower(), columns_of(made)) for name, made in pairs]
    if method == "selectExpr":
        texts = [value.value for value in _flat(values) if isinstance(value, Const)]
        return [alias for text in texts if isinstance(text, str) for alias in sql(text).aliases]
    return [alias for value in values for alias in columns_of(value).aliases]


def _flat(values: list[Any]) -> list[Any]:
    return [item for value in values for item in (value.items if isinstance(value, Sequence) else (value,))]


def with_operator(
    frame: Frame,
    kind: str,
    node: ast.Call,
    method: str,
    *,
    keys: Columns = Columns(),  # noqa: B008 - frozen
    columns: Columns = Columns(),  # noqa: B008 - frozen
    other: Frame | None = None,
    given: Arguments | None = None,
) -> Frame:
    """A frame with one more stateful operator."""
    operator = Stateful(
        kind,
        node,
        method,
        keys,
        columns,
        frame.watermarks,
        () if other is None else other.watermarks,
        frame.known and (other is None or other.known),
        frame.time_columns | (frozenset() if other is None else other.time_columns),
        frame.random_columns,
        () if given is None else given.pairs(),
    )
    both = frame if other is None else frame.with_other(other)
    named = {name for name, made in keys.aliases if made.calls & _WINDOWS or made.names & both.time_columns}
    time = both.time_columns | named | ({"window", "session_window"} if keys.calls & _WINDOWS else set())
    return replace(both, operators=unique((*both.operators, operator)), time_columns=time, made_by=node)


def joined(frame: Frame, method: str, given: Arguments, node: ast.Call) -> Frame:
    """A join of two frames: it keeps state where both are streams."""
    other = given.get(0, "other")
    if not isinstance(other, Frame):
        return replace(frame, known=False, made_by=node)
    if frame.streaming and other.streaming:
        on = given.get(1, "on")
        keys = Columns() if on is None else columns_of(on)
        return with_operator(frame, "join", node, method, keys=keys, other=other, given=given)
    both = frame.with_other(other)
    if frame.streaming is False or other.streaming is False:
        stream = other if frame.streaming is False else frame
        return replace(stream, known=stream.known, made_by=node)
    return replace(both, known=False, made_by=node)


_STEPS: Final[Mapping[str, Callable[[Frame, str, Arguments, ast.Call], Any]]] = {
    "withWatermark": _timed,
    "agg": _over_all,
    **dict.fromkeys(("join", "crossJoin"), joined),
    **dict.fromkeys(_SELECTING, selected_from),
    **dict.fromkeys(_GROUPING, _grouped),
    **dict.fromkeys(_UNIONS, _united),
    **dict.fromkeys(_DEDUPING, _deduplicated),
}


def of_grouped(grouped: Grouped, method: str, given: Arguments, node: ast.Call) -> Any:
    """What a method of grouped rows gives."""
    if method == "pivot":
        return grouped
    if method in _AGGREGATES:
        return aggregated(grouped, method, given, node)
    kinds = {
        "applyInPandasWithState": "groups",
        "transformWithState": "processor",
        "transformWithStateInPandas": "processor",
    }
    if method in kinds:
        return with_operator(grouped.frame, kinds[method], node, method, keys=grouped.keys, given=given)
    return replace(grouped.frame, known=False, made_by=node) if method.startswith("apply") else UNKNOWN


def aggregated(grouped: Grouped, method: str, given: Arguments, node: ast.Call) -> Frame:
    """An aggregate."""
    return with_operator(
        grouped.frame, "aggregate", node, method, keys=grouped.keys, columns=given.columns(), given=given
    )


def of_reader(reader: Reader, method: str, given: Arguments) -> Any:
    """What a method of a reader gives."""
    if method == "format":
        reader.format = given.text(0, "source")
        return reader
    if method == "option":
        key = given.text(0, "key")
        if key is not None:
            reader.options[key.lower()] = given.get(1, "value")
        return reader
    if method == "options":
        reader.options.update({key.lower(): value for key, value in given.named.items()})
        return reader
    if method in ("schema", "name"):
        return reader
    if method in _LOADS:
        source = given.text(1, "format") or reader.format or method
        return Frame(reader.streaming, sources=frozenset({source}))
    return UNKNOWN


def of_writer(writer: Writer, method: str, given: Arguments, node: ast.Call) -> Any:
    """What a method of a writer gives: itself, changed, until it is started."""
    named = dict(given.named)
    if method == "format":
        writer.format, writer.nodes["format"] = given.text(0, "source"), node
    elif method == "outputMode":
        writer.mode, writer.nodes["mode"] = given.text(0, "outputMode"), node
    elif method == "option":
        key = given.text(0, "key")
        writer.known = writer.known and key is not None
        if key is not None:
            writer.options[key.lower()] = (given.get(1, "value"), node)
    elif method == "options":
        writer.known = writer.known and given.known
        writer.options.update({key.lower(): (value, node) for key, value in named.items()})
    elif method == "trigger":
        writer.triggered = True
        writer.ends = bool(named.keys() & {"availableNow", "once"})
    elif method in ("foreachBatch", "foreach"):
        writer.function, writer.nodes["function"] = given.get(0, "func"), node
        writer.format = writer.format or method
    elif method in ("start", "toTable", "table"):
        return _started(writer, method, given, node)
    elif method not in ("queryName", "partitionBy", "clusterBy"):
        return UNKNOWN
    return writer


def _started(writer: Writer, method: str, given: Arguments, node: ast.Call) -> Any:
    named = dict(given.named)
    for key in ("format", "outputMode", "queryName", "partitionBy", "path", "tableName"):
        value = named.pop(key, None)
        if key == "format" and isinstance(value, Const):
            writer.format, writer.nodes["format"] = value.value, node
        elif key == "outputMode" and isinstance(value, Const):
            writer.mode, writer.nodes["mode"] = value.value, node
        elif key in ("path", "tableName") and value is not None:
            writer.path = value
    if given.positional:
        writer.path = given.positional[0]
    writer.options.update({key.lower(): (value, node) for key, value in named.items()})
    writer.known = writer.known and given.known
    writer.format = writer.format or ("table" if method != "start" else None)
    writer.started = node
    return UNKNOWN


def of_holdfast(name: str, given: Arguments, node: ast.Call) -> Any:
    """What a function of Holdfast's gives."""
    first = given.get(0, {"join_within": "left", "enrich": "stream"}.get(name, "df"))
    if name == "sink":
        frame = replace(first, streaming=True) if isinstance(first, Frame) else Frame(True, known=False)
        return Writer(frame, node, own=True)
    if not isinstance(first, Frame):
        return UNKNOWN
    made: Any = UNKNOWN
    if name == "enrich":
        made = replace(first, made_by=node)
    elif name in ("keyed", "operate"):
        made = OwnStream(first, name)
    elif name == "windowed":
        made = OwnStream(_with_given_watermark(first, given, node), name)
    elif name in _BOUNDED:
        made = with_operator(_with_given_watermark(first, given, node), "own", node, name)
    elif name == "join_within" and isinstance(right := given.get(1, "right"), Frame):
        both = _with_given_watermark(first, given, node).with_other(right)
        made = with_operator(both, "own", node, name)
    return made


def _with_given_watermark(frame: Frame, given: Arguments, node: ast.Call) -> Frame:
    delay = given.named.get("watermark")
    if not isinstance(delay, Const) or delay.value is None:
        return frame
    return watermarked(
        frame, given.text(-1, "time") if "time" in given.named else None, str(delay.value), node
    )


def of_own_stream(stream: OwnStream, method: str, given: Arguments, node: ast.Call) -> Any:
    """What a method of Holdfast's keyed or windowed stream gives."""
    if method == "connect":
        other = given.get(0, "df")
        frame = (
            stream.frame.with_other(other) if isinstance(other, Frame) else replace(stream.frame, known=False)
        )
        return OwnStream(frame, stream.kind)
    if method == "process":
        return with_operator(stream.frame, "keyed", node, method, given=given)
    if method == "agg":
        return with_operator(stream.frame, "own", node, method, columns=given.columns(), given=given)
    return stream
