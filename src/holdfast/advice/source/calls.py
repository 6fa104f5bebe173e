"""The evaluation of calls on columns, frames, readers and writers."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from holdfast.advice.source.values import (
    NOTHING,
    UNKNOWN,
    Builder,
    ColumnExpression,
    Const,
    Frame,
    Grouped,
    OwnStream,
    Pairs,
    ProgramSettings,
    ReaderValue,
    Sequence,
    SessionValue,
    Stateful,
    Unknown,
    Watermark,
    WriterValue,
    unique,
)

# A marker among the functions of an expression for an operation with few results, such as `% 8`.
BOUNDING: Final = "%"
_CALLED: Final = re.compile(r"([A-Za-z_]\w*)\s*\(")
_NAMED: Final = re.compile(r"^\s*(.+?)\s+as\s+`?(\w+)`?\s*$", re.IGNORECASE | re.DOTALL)
_COMPARED: Final = re.compile(r"[<>]|\bbetween\b", re.IGNORECASE)
_WORD: Final = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class CallArguments:
    """The arguments of a call.

    Attributes:
        positional: The positional arguments.
        named: The keyword arguments.
        known: Whether these are all arguments; False for calls with `*more` or `**more`.
    """

    positional: tuple[Any, ...]
    named: Mapping[str, Any]
    known: bool = True

    def get(self, position: int, name: str) -> Any:
        """Return an argument by position or name; None if it is missing."""
        if position < len(self.positional):
            return self.positional[position]
        return self.named.get(name)

    def text(self, position: int, name: str) -> str | None:
        """Return a text argument; None if it is unknown or not text."""
        value = self.get(position, name)
        return (
            value.value if isinstance(value, Const) and value.whole and isinstance(value.value, str) else None
        )

    def columns(self) -> ColumnExpression:
        """Return all arguments as columns."""
        found = ColumnExpression(known=self.known)
        for value in (*self.positional, *self.named.values()):
            found = found.merged(columns_of(value))
        return found

    def pairs(self) -> tuple[tuple[str, Any], ...]:
        """Return all arguments, positional ones by number."""
        return (*((str(index), value) for index, value in enumerate(self.positional)), *self.named.items())


def columns_of(value: Any) -> ColumnExpression:
    """Return a value as columns: a text is the column of that name."""
    if isinstance(value, ColumnExpression):
        return value
    if isinstance(value, Const):
        if isinstance(value.value, str) and value.whole:
            name = value.value.rpartition(".")[2].lower() if _is_name(value.value) else value.value
            return ColumnExpression(names=frozenset({name}), used=frozenset({name}))
        return ColumnExpression(known=value.whole)
    if isinstance(value, Sequence):
        found = ColumnExpression()
        for item in value.items:
            found = found.merged(columns_of(item))
        return found
    return ColumnExpression(known=False)


def sql(text: str) -> ColumnExpression:
    """Return a SQL expression as columns."""
    named = _NAMED.match(text)
    if named is not None:
        inner = sql(named[1])
        return replace(inner, aliases=((named[2].lower(), inner),))
    words = frozenset(word.lower() for word in _WORD.findall(text))
    bare = frozenset({text.strip().lower()}) if _is_name(text.strip()) else frozenset()
    calls = frozenset(name.lower() for name in _CALLED.findall(text))
    return ColumnExpression(bare, words, calls, (), (text,), bool(_COMPARED.search(text)))


def _is_name(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


def of_function(name: str, given: CallArguments) -> ColumnExpression:
    """Evaluate a function over columns."""
    if name in ("col", "column"):
        return columns_of(given.get(0, "col"))
    if name == "expr":
        text = given.text(0, "str")
        return ColumnExpression(known=False) if text is None else sql(text)
    if name == "lit":
        return ColumnExpression(known=True)
    if name in ("window", "session_window"):
        time = columns_of(given.get(0, "timeColumn"))
        made = given.columns()
        through = NOTHING if time.names else time.used
        return replace(made.inside(), calls=made.calls | {name}, aliases=(), unmarked=made.unmarked | through)
    return replace(given.columns().inside(), calls=given.columns().calls | {name}, aliases=(), known=True)


def of_columns(base: ColumnExpression, name: str, given: CallArguments) -> ColumnExpression:
    """Evaluate a method of a column."""
    if name in ("alias", "name"):
        alias = given.text(0, "alias")
        return base if alias is None else replace(base, aliases=((alias.lower(), base),))
    if name in ("asc", "desc"):
        return base
    merged = base.merged(given.columns()).inside()
    return replace(merged, compares=merged.compares or name == "between", calls=merged.calls | {name})


def combined(node: ast.expr, values: list[Any]) -> ColumnExpression:
    """Combine expressions, at least one of which has columns."""
    found = ColumnExpression()
    for value in values:
        found = found.merged(value if isinstance(value, ColumnExpression) else ColumnExpression())
    ordered = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
    compares = isinstance(node, ast.Compare) and any(isinstance(each, ordered) for each in node.ops)
    bounding = isinstance(node, ast.Compare) or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod))
    calls = found.calls | ({BOUNDING} if bounding else frozenset())
    return replace(found.inside(), compares=found.compares or compares, calls=calls)


_PREFIX: Final = "spark."
_MAKING: Final = frozenset(("set", "config", "setIfMissing"))


def note_setting(settings: ProgramSettings, name: str, given: CallArguments, node: ast.Call) -> None:
    """Record the setting that a call makes on `spark.conf`, a builder or a `SparkConf`."""
    if name not in _MAKING:
        return
    key = given.get(0, "key")
    if isinstance(key, Const) and isinstance(key.value, str) and key.value.startswith(_PREFIX):
        settings.made[key.value] = (given.get(1, "value"), node)
        if key.value == "spark.master":
            settings.master = given.text(1, "value")
    elif isinstance(key, Unknown) and len(given.positional) == 2:
        settings.known = False


def note_dict(settings: ProgramSettings, node: ast.Dict) -> None:
    """Record the settings in a dict, which is assumed to be applied."""
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str) and key.value.startswith(_PREFIX):
            made = Const(value.value) if isinstance(value, ast.Constant) else UNKNOWN
            settings.made[key.value] = (made, key)


def of_builder(
    settings: ProgramSettings, builder: Builder, name: str, given: CallArguments, node: ast.Call
) -> Any:
    """Evaluate a method of a session's builder."""
    if name == "master":
        settings.master = given.text(0, "master") or settings.master
    elif name == "config" and not (given.positional and isinstance(given.positional[0], Const)):
        settings.known = settings.known and isinstance(given.named.get("map"), Pairs)
    elif name in ("getOrCreate", "create"):
        settings.built = settings.built or node
        return SessionValue()
    return builder


@dataclass(slots=True)
class Evaluated:
    """The result of evaluating a file.

    Attributes:
        tree: The syntax tree.
        imports: The full names of imported names.
        settings: The Spark settings made.
        frames: All DataFrames, in order of creation.
        writers: All writers.
        marks: All declared watermarks, each with the DataFrame it was declared on.
        options: The options of stream readers: reader, key, value and call.
        dropped: DataFrames that a statement creates and discards.
        own_calls: Calls of Holdfast's functions, by name.
        functions: The functions and methods of the file by name; the last of several with one name.
        complete: Whether the whole file was evaluated.
    """

    tree: ast.Module
    imports: dict[str, str] = field(default_factory=dict)
    settings: ProgramSettings = field(default_factory=ProgramSettings)
    frames: list[Frame] = field(default_factory=list)
    writers: list[WriterValue] = field(default_factory=list)
    marks: list[tuple[Watermark, Frame]] = field(default_factory=list)
    options: list[tuple[ReaderValue, str, Any, ast.Call]] = field(default_factory=list)
    dropped: list[tuple[Frame, ast.Call]] = field(default_factory=list)
    own_calls: list[tuple[str, CallArguments, ast.Call]] = field(default_factory=list)
    functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = field(default_factory=dict)
    complete: bool = True

    def operators(self) -> list[Stateful]:
        """Return the stateful operators of streams; a call with several inputs is listed once for each."""
        streams = [frame for frame in self.frames if frame.streaming]
        streams += [writer.frame for writer in self.writers]
        seen: dict[Any, Stateful] = {}
        for frame in streams:
            for operator in frame.operators:
                seen.setdefault(
                    (id(operator.node), operator.watermarks, operator.other, operator.known), operator
                )
        return list(seen.values())


# The frame is unchanged.
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
# The columns after these methods are not tracked.
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
# Holdfast's operators that bound their state by a given time.
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
    frame: Frame, method: str, given: CallArguments, node: ast.Call, run: Callable[[Any, CallArguments], Any]
) -> Any:
    """Evaluate a method of a frame.

    Args:
        frame: The frame.
        method: The method's name.
        given: The arguments of the call.
        node: The node of the call.
        run: The function that evaluates a function of the file with arguments.
    """
    if method == "transform":
        made = run(
            given.get(0, "func"), CallArguments((frame, *given.positional[1:]), given.named, given.known)
        )
        return made if isinstance(made, Frame) else replace(frame, known=False, made_by=node)
    if method in _SAME:
        return replace(frame, made_by=node)
    if method in _RESHAPING:
        return _reshaped(frame, node)
    step = _STEPS.get(method)
    return UNKNOWN if step is None else step(frame, method, given, node)


def _reshaped(frame: Frame, node: ast.Call) -> Frame:
    """Return a DataFrame with different columns and an unknown event-time column."""
    return replace(frame, known=frame.known and not frame.watermarks, made_by=node)


def _timed(frame: Frame, _method: str, given: CallArguments, node: ast.Call) -> Frame:
    return watermarked(frame, given.text(0, "eventTime"), given.text(1, "delayThreshold"), node)


def _grouped(frame: Frame, _method: str, given: CallArguments, _node: ast.Call) -> Grouped:
    return Grouped(frame, given.columns())


def _over_all(frame: Frame, method: str, given: CallArguments, node: ast.Call) -> Frame:
    return aggregated(Grouped(frame, ColumnExpression()), method, given, node)


def _deduplicated(frame: Frame, method: str, given: CallArguments, node: ast.Call) -> Frame:
    kind = "dedupe-within" if method == "dropDuplicatesWithinWatermark" else "dedupe"
    return with_operator(frame, kind, node, method, keys=given.columns(), given=given)


def _united(frame: Frame, _method: str, given: CallArguments, node: ast.Call) -> Frame:
    other = given.get(0, "other")
    both = frame.with_other(other) if isinstance(other, Frame) else replace(frame, known=False)
    return replace(both, made_by=node)


def watermarked(frame: Frame, column: str | None, delay: str | None, node: ast.AST) -> Frame:
    """Return a DataFrame with one more watermark."""
    name = None if column is None else column.lower()
    added = frame.time_columns | ({name} if name is not None else frozenset())
    mark = Watermark(name, delay, node)
    return replace(frame, watermarks=unique((*frame.watermarks, mark)), time_columns=added, made_by=node)


def selected_from(frame: Frame, method: str, given: CallArguments, node: ast.Call) -> Frame:
    """Return a selection, or a DataFrame with added columns."""
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


def _aliases(method: str, given: CallArguments) -> list[tuple[str, ColumnExpression]]:
    """Return the names that a selection assigns, each with its expression."""
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
    keys: ColumnExpression = ColumnExpression(),  # noqa: B008 - frozen
    columns: ColumnExpression = ColumnExpression(),  # noqa: B008 - frozen
    other: Frame | None = None,
    given: CallArguments | None = None,
) -> Frame:
    """Return a DataFrame with one more stateful operator."""
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


def joined(frame: Frame, method: str, given: CallArguments, node: ast.Call) -> Frame:
    """Return a join of two DataFrames, which is stateful if both are streams."""
    other = given.get(0, "other")
    if not isinstance(other, Frame):
        return replace(frame, known=False, made_by=node)
    if frame.streaming and other.streaming:
        on = given.get(1, "on")
        keys = ColumnExpression() if on is None else columns_of(on)
        return with_operator(frame, "join", node, method, keys=keys, other=other, given=given)
    both = frame.with_other(other)
    if frame.streaming is False or other.streaming is False:
        stream = other if frame.streaming is False else frame
        return replace(stream, known=stream.known, made_by=node)
    return replace(both, known=False, made_by=node)


_STEPS: Final[Mapping[str, Callable[[Frame, str, CallArguments, ast.Call], Any]]] = {
    "withWatermark": _timed,
    "agg": _over_all,
    **dict.fromkeys(("join", "crossJoin"), joined),
    **dict.fromkeys(_SELECTING, selected_from),
    **dict.fromkeys(_GROUPING, _grouped),
    **dict.fromkeys(_UNIONS, _united),
    **dict.fromkeys(_DEDUPING, _deduplicated),
}


def of_grouped(grouped: Grouped, method: str, given: CallArguments, node: ast.Call) -> Any:
    """Evaluate a method of grouped rows."""
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


def aggregated(grouped: Grouped, method: str, given: CallArguments, node: ast.Call) -> Frame:
    """Return an aggregate."""
    return with_operator(
        grouped.frame, "aggregate", node, method, keys=grouped.keys, columns=given.columns(), given=given
    )


def of_reader(reader: ReaderValue, method: str, given: CallArguments) -> Any:
    """Evaluate a method of a reader."""
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


def of_writer(writer: WriterValue, method: str, given: CallArguments, node: ast.Call) -> Any:
    """Evaluate a method of a writer, which changes and returns the writer until the query is started."""
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


def _started(writer: WriterValue, method: str, given: CallArguments, node: ast.Call) -> Any:
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


def of_holdfast(name: str, given: CallArguments, node: ast.Call) -> Any:
    """Evaluate a function of Holdfast."""
    first = given.get(0, {"join_within": "left", "enrich": "stream"}.get(name, "df"))
    if name == "sink":
        frame = replace(first, streaming=True) if isinstance(first, Frame) else Frame(True, known=False)
        return WriterValue(frame, node, own=True)
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


def _with_given_watermark(frame: Frame, given: CallArguments, node: ast.Call) -> Frame:
    delay = given.named.get("watermark")
    if not isinstance(delay, Const) or delay.value is None:
        return frame
    return watermarked(
        frame, given.text(-1, "time") if "time" in given.named else None, str(delay.value), node
    )


def of_own_stream(stream: OwnStream, method: str, given: CallArguments, node: ast.Call) -> Any:
    """Evaluate a method of Holdfast's keyed or windowed stream."""
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
