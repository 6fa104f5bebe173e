"""What a call on a frame, a reader or a writer gives."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from holdfast.advice.source.values import (
    UNKNOWN,
    Columns,
    Const,
    Frame,
    Grouped,
    OwnStream,
    Reader,
    Sequence,
    Stateful,
    Watermark,
    Writer,
    unique,
)

# A frame stays what it is.
_SAME: Final = frozenset(
    "filter where repartition repartitionByRange coalesce persist cache unpersist hint alias drop dropna fillna na"
    " replace sample sort orderBy sortWithinPartitions observe checkpoint localCheckpoint toDF limit offset"
    " mapInPandas mapInArrow unpivot melt describe colRegex".split()
)
_SELECTING: Final = frozenset("select selectExpr withColumn withColumns withColumnRenamed withColumnsRenamed".split())
_UNIONS: Final = frozenset(("union", "unionAll", "unionByName"))
_GROUPING: Final = frozenset(("groupBy", "groupby", "rollup", "cube"))
_AGGREGATES: Final = frozenset(("agg", "count", "sum", "avg", "mean", "min", "max"))
_LOADS: Final = frozenset("load table json csv parquet orc text".split())
_CHANCE: Final = frozenset(("rand", "randn", "uuid", "random", "monotonically_increasing_id"))
_WINDOWS: Final = frozenset(("window", "session_window", "window_time"))
# Operators of Holdfast's that bound their state by the time that they are given.
_BOUNDED: Final = frozenset(("dedupe", "sessions", "running"))
FRAME_METHODS: Final = (
    _SAME
    | _SELECTING
    | _UNIONS
    | _GROUPING
    | {"withWatermark", "dropDuplicates", "drop_duplicates", "dropDuplicatesWithinWatermark", "distinct"}
    | {"join", "crossJoin", "transform"}
)
_CALLED: Final = re.compile(r"([A-Za-z_]\w*)\s*\(")
_NAMED: Final = re.compile(r"^\s*(.+?)\s+as\s+`?(\w+)`?\s*$", re.IGNORECASE | re.DOTALL)
_COMPARED: Final = re.compile(r"[<>]|\bbetween\b", re.IGNORECASE)
_WORD: Final = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a call.

    Attributes:
        positional: Those without a name.
        named: Those with one.
        known: Whether there are no others, as `*more` or `**more` has.
    """

    positional: tuple[Any, ...]
    named: Mapping[str, Any]
    known: bool = True

    def get(self, position: int, name: str) -> Any:
        """One of them by position or name; None without it."""
        if position < len(self.positional):
            return self.positional[position]
        return self.named.get(name)

    def text(self, position: int, name: str) -> str | None:
        """A text among them; None where it is none, or cannot be told."""
        value = self.get(position, name)
        return value.value if isinstance(value, Const) and value.whole and isinstance(value.value, str) else None

    def columns(self) -> Columns:
        """All of them as columns."""
        found = Columns(known=self.known)
        for value in (*self.positional, *self.named.values()):
            found = found.merged(columns_of(value))
        return found

    def pairs(self) -> tuple[tuple[str, Any], ...]:
        """All of them, positions as numbers."""
        return (*((str(index), value) for index, value in enumerate(self.positional)), *self.named.items())


def columns_of(value: Any) -> Columns:
    """A value as columns: a text is the column of that name."""
    if isinstance(value, Columns):
        return value
    if isinstance(value, Const):
        if isinstance(value.value, str) and value.whole:
            name = value.value.rpartition(".")[2].lower() if _is_name(value.value) else value.value
            return Columns(names=frozenset({name}), used=frozenset({name}))
        return Columns(known=value.whole)
    if isinstance(value, Sequence):
        found = Columns()
        for item in value.items:
            found = found.merged(columns_of(item))
        return found
    return Columns(known=False)


def sql(text: str) -> Columns:
    """An expression of SQL as columns."""
    named = _NAMED.match(text)
    if named is not None:
        inner = sql(named[1])
        return replace(inner, aliases=((named[2].lower(), inner),))
    words = frozenset(word.lower() for word in _WORD.findall(text))
    bare = frozenset({text.strip().lower()}) if _is_name(text.strip()) else frozenset()
    calls = frozenset(name.lower() for name in _CALLED.findall(text))
    return Columns(bare, words, calls, (), (text,), bool(_COMPARED.search(text)))


def _is_name(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


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
    if method == "withWatermark":
        return watermarked(frame, given.text(0, "eventTime"), given.text(1, "delayThreshold"), node)
    if method in _SELECTING:
        return _selected(frame, method, given, node)
    if method in _GROUPING:
        return Grouped(frame, given.columns())
    if method == "agg":
        return aggregated(Grouped(frame, Columns()), method, given, node)
    if method in ("dropDuplicates", "drop_duplicates", "distinct", "dropDuplicatesWithinWatermark"):
        kind = "dedupe-within" if method == "dropDuplicatesWithinWatermark" else "dedupe"
        return with_operator(frame, kind, node, method, keys=given.columns(), given=given)
    if method in ("join", "crossJoin"):
        return joined(frame, given, node, method)
    if method in _UNIONS:
        other = given.get(0, "other")
        return replace(
            frame.with_other(other) if isinstance(other, Frame) else replace(frame, known=False), made_by=node
        )
    if method == "transform":
        made = run(given.get(0, "func"), Arguments((frame, *given.positional[1:]), given.named, given.known))
        return made if isinstance(made, Frame) else replace(frame, known=False, made_by=node)
    if method in _SAME:
        return replace(frame, made_by=node)
    return UNKNOWN


def watermarked(frame: Frame, column: str | None, delay: str | None, node: ast.AST) -> Frame:
    """A frame with one more watermark."""
    name = None if column is None else column.lower()
    added = frame.time_columns | ({name} if name is not None else frozenset())
    mark = Watermark(name, delay, node)
    return replace(frame, watermarks=unique((*frame.watermarks, mark)), time_columns=added, made_by=node)


def _selected(frame: Frame, method: str, given: Arguments, node: ast.Call) -> Frame:
    time, chance = set(frame.time_columns), set(frame.random_columns)
    for name, made in _aliases(method, given):
        if made.calls & _CHANCE or made.used & frame.random_columns:
            chance.add(name)
        if made.names & frame.time_columns or (made.calls & _WINDOWS and not made.calls - _WINDOWS):
            time.add(name)
    return replace(
        frame, time_columns=frozenset(time), random_columns=frozenset(chance), made_by=node
    )


def _aliases(method: str, given: Arguments) -> list[tuple[str, Columns]]:
    """The names that a selection gives, each with its expression."""
    if method == "withColumn":
        name = given.text(0, "colName")
        return [] if name is None else [(name.lower(), columns_of(given.get(1, "col")))]
    if method == "withColumnRenamed":
        old, new = given.text(0, "existing"), given.text(1, "new")
        return [] if old is None or new is None else [(new.lower(), columns_of(Const(old.lower())))]
    values = [*given.positional, *given.named.values()]
    if method == "selectExpr":
        texts = [value.value for value in _flat(values) if isinstance(value, Const)]
        return [alias for text in texts if isinstance(text, str) for alias in sql(text).aliases]
    return [alias for value in values for alias in columns_of(value).aliases]


def _flat(values: list[Any]) -> list[Any]:
    return [
        item for value in values for item in (value.items if isinstance(value, Sequence) else (value,))
    ]


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
    time = both.time_columns | ({"window", "session_window"} if keys.calls & _WINDOWS else frozenset())
    return replace(both, operators=unique((*both.operators, operator)), time_columns=time, made_by=node)


def joined(frame: Frame, given: Arguments, node: ast.Call, method: str) -> Frame:
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
    frame = given.get(0, "df")
    if name == "join_within":
        left, right = given.get(0, "left"), given.get(1, "right")
        if isinstance(left, Frame) and isinstance(right, Frame):
            both = _with_given_watermark(left, given, node).with_other(right)
            return with_operator(both, "own", node, name)
        return UNKNOWN
    if name == "enrich":
        stream = given.get(0, "stream")
        return replace(stream, made_by=node) if isinstance(stream, Frame) else UNKNOWN
    if not isinstance(frame, Frame):
        return Writer(Frame(True, known=False), node, own=True) if name == "sink" else UNKNOWN
    if name == "sink":
        return Writer(replace(frame, streaming=True), node, own=True)
    if name in ("keyed", "operate"):
        return OwnStream(frame, name)
    if name == "windowed":
        return OwnStream(_with_given_watermark(frame, given, node), name)
    if name in _BOUNDED:
        return with_operator(_with_given_watermark(frame, given, node), "own", node, name)
    return UNKNOWN


def _with_given_watermark(frame: Frame, given: Arguments, node: ast.Call) -> Frame:
    delay = given.named.get("watermark")
    if not isinstance(delay, Const) or delay.value is None:
        return frame
    return watermarked(frame, given.text(-1, "time") if "time" in given.named else None, str(delay.value), node)


def of_own_stream(stream: OwnStream, method: str, given: Arguments, node: ast.Call) -> Any:
    """What a method of Holdfast's keyed or windowed stream gives."""
    if method == "connect":
        other = given.get(0, "df")
        frame = stream.frame.with_other(other) if isinstance(other, Frame) else replace(stream.frame, known=False)
        return OwnStream(frame, stream.kind)
    if method == "process":
        return with_operator(stream.frame, "keyed", node, method, given=given)
    if method == "agg":
        return with_operator(stream.frame, "own", node, method, columns=given.columns(), given=given)
    return stream
