"""The values of names in a program, as the evaluation models them, and locations in its code.

A value has the properties that the rules check: a DataFrame has its watermarks and its stateful operators.
Other values are `Unknown`. A DataFrame derived from an unknown value is not `known`: a missing watermark or
operator in it proves nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

NOTHING: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Unknown:
    """An unknown value."""


UNKNOWN: Final = Unknown()


@dataclass(frozen=True, slots=True)
class Module:
    """A module, or a name in one, by its full name."""

    name: str


@dataclass(frozen=True, slots=True)
class Const:
    """A text or number; of an f-string, only the beginning."""

    value: Any
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list or tuple whose items are known."""

    items: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Pairs:
    """A dict whose keys are known texts."""

    items: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Function:
    """A function or lambda of the file."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True)
class Class:
    """A class of the file."""

    node: ast.ClassDef


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance of a class of the file."""

    node: ast.ClassDef
    attributes: dict[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class ColumnExpression:
    """An expression over columns.

    Attributes:
        names: The plain columns that the expression consists of: `ts` for `F.col("ts")`, none for
            `F.year("ts")`.
        used: All columns that the expression reads.
        calls: The functions in the expression, by the last part of their names.
        aliases: The names that the expression assigns, each with its expression.
        texts: The SQL texts in the expression.
        compares: Whether the expression compares with an operator other than equality.
        known: Whether the whole expression is known.
        unmarked: Columns that do not carry the watermark even if it is declared on a column of this name:
            those taken from the DataFrame before `withWatermark`, and those that a window reads through a
            function.
    """

    names: frozenset[str] = NOTHING
    used: frozenset[str] = NOTHING
    calls: frozenset[str] = NOTHING
    aliases: tuple[tuple[str, ColumnExpression], ...] = ()
    texts: tuple[str, ...] = ()
    compares: bool = False
    known: bool = True
    unmarked: frozenset[str] = NOTHING

    def merged(self, other: ColumnExpression) -> ColumnExpression:
        """Return the union of both expressions."""
        return ColumnExpression(
            self.names | other.names,
            self.used | other.used,
            self.calls | other.calls,
            self.aliases + other.aliases,
            self.texts + other.texts,
            self.compares or other.compares,
            self.known and other.known,
            self.unmarked | other.unmarked,
        )

    def inside(self) -> ColumnExpression:
        """Return the expression as a part of a larger one, which is not a plain column."""
        return replace(self, names=NOTHING)


@dataclass(frozen=True, slots=True)
class Watermark:
    """A declared watermark.

    Attributes:
        column: The event-time column; None if unknown.
        delay: The delay as written; None if unknown.
        node: The call.
    """

    column: str | None
    delay: str | None
    node: ast.AST


@dataclass(frozen=True, slots=True)
class Stateful:
    """A stateful operator of a DataFrame.

    Attributes:
        kind: `aggregate`, `dedupe`, `dedupe-within`, `join`, `groups`, `processor`, `keyed`, or `own` for
            Holdfast operators that bound their own state.
        node: The call.
        method: The name of the method.
        keys: The grouping keys, or the condition of a join.
        columns: The computed columns.
        watermarks: The watermarks before the operator; for a join, those of its left side.
        other: For a join, the watermarks of its right side.
        known: Whether everything before the operator is known.
        time_columns: The columns with the event time or a window of it.
        random_columns: The random columns.
        arguments: The arguments of the call, positional ones by number.
    """

    kind: str
    node: ast.Call
    method: str
    keys: ColumnExpression = ColumnExpression()
    columns: ColumnExpression = ColumnExpression()
    watermarks: tuple[Watermark, ...] = ()
    other: tuple[Watermark, ...] = ()
    known: bool = True
    time_columns: frozenset[str] = NOTHING
    random_columns: frozenset[str] = NOTHING
    arguments: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Frame:
    """A DataFrame.

    Attributes:
        streaming: Whether this is a stream; None if unknown.
        known: Whether everything before the DataFrame is known.
        sources: The formats of the sources.
        watermarks: All watermarks before the DataFrame.
        operators: The stateful operators before the DataFrame, in order.
        time_columns: The columns with the event time or a window of it.
        random_columns: The random columns.
        made_by: The call that created the DataFrame.
    """

    streaming: bool | None
    known: bool = True
    sources: frozenset[str] = NOTHING
    watermarks: tuple[Watermark, ...] = ()
    operators: tuple[Stateful, ...] = ()
    time_columns: frozenset[str] = NOTHING
    random_columns: frozenset[str] = NOTHING
    made_by: ast.AST | None = field(default=None, compare=False)

    def with_other(self, other: Frame) -> Frame:
        """Return a DataFrame with the properties of both inputs."""
        return Frame(
            True if True in (self.streaming, other.streaming) else self.streaming,
            self.known and other.known,
            self.sources | other.sources,
            unique((*self.watermarks, *other.watermarks)),
            unique((*self.operators, *other.operators)),
            self.time_columns | other.time_columns,
            self.random_columns | other.random_columns,
        )


def unique(items: Iterable[Any]) -> tuple[Any, ...]:
    """Return the items without duplicates from the same call."""
    return tuple({id(item.node): item for item in items}.values())


@dataclass(slots=True)
class ReaderValue:
    """The result of `readStream` or `read`, with its options."""

    streaming: bool
    options: dict[str, Any] = field(default_factory=dict)
    format: str | None = None


@dataclass(frozen=True, slots=True)
class Grouped:
    """A grouped DataFrame."""

    frame: Frame
    keys: ColumnExpression


@dataclass(frozen=True, slots=True)
class OwnStream:
    """The result of `hf.keyed`, `hf.operate` or `hf.windowed`."""

    frame: Frame
    kind: str


@dataclass(slots=True)
class WriterValue:
    """The result of `writeStream` or `hf.sink`, with its options.

    Attributes:
        frame: The written DataFrame.
        node: The expression where the writer begins.
        own: Whether the writer is from `hf.sink`.
        options: Options by name in lower case, each with the node that sets it.
        format: The format.
        mode: The output mode.
        triggered: Whether a trigger is set.
        ends: Whether the trigger ends the query, as availableNow does.
        function: The function passed to foreachBatch.
        known: Whether all options are known.
        started: The call that starts the query.
        nodes: The nodes that set the format, mode and function, by these names.
        path: The path or table.
    """

    frame: Frame
    node: ast.AST
    own: bool = False
    options: dict[str, tuple[Any, ast.AST]] = field(default_factory=dict)
    format: str | None = None
    mode: str | None = None
    triggered: bool = False
    ends: bool = False
    function: Any = None
    known: bool = True
    started: ast.AST | None = None
    nodes: dict[str, ast.AST] = field(default_factory=dict)
    path: Any = None


@dataclass(slots=True)
class Builder:
    """A session builder."""

    node: ast.AST


@dataclass(frozen=True, slots=True)
class SessionValue:
    """A session built by the file."""


@dataclass(slots=True)
class ProgramSettings:
    """The Spark settings in a file.

    Attributes:
        made: Each setting with its value and node; the last one counts.
        known: Whether all settings are known.
        built: The node that builds the session; None if the file builds none.
        own: Whether Holdfast builds the session.
        master: The Spark master, if the file sets it.
    """

    made: dict[str, tuple[Any, ast.AST]] = field(default_factory=dict)
    known: bool = True
    built: ast.AST | None = None
    own: bool = False
    master: str | None = None

    def text(self, key: str) -> str | None:
        """Return a setting as Spark reads it; None if it is missing or unknown."""
        value, _ = self.made.get(key, (None, None))
        if isinstance(value, Const) and value.whole and value.value is not None:
            return str(value.value).lower() if isinstance(value.value, bool) else str(value.value)
        return None


@dataclass(frozen=True, slots=True)
class CodeLocation:
    """A violation at a location in code.

    Attributes:
        rule: The ID of the rule.
        node: The code.
        seen: The observation.
    """

    rule: str
    node: ast.AST
    seen: str

    @property
    def line(self) -> int:
        """Return the line of the called name, which may differ from the first line of a chain of calls."""
        node = self.node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return node.func.end_lineno or node.lineno
        return getattr(node, "lineno", 1)

    @property
    def column(self) -> int:
        """Return the column in that line, from 1."""
        node = self.node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return (node.func.end_col_offset or len(node.func.attr)) - len(node.func.attr) + 1
        return int(getattr(node, "col_offset", 0)) + 1


def listed(columns: ColumnExpression) -> str:
    """Format columns for a message."""
    names = sorted(columns.names) or sorted(f"{call}(…)" for call in columns.calls)
    return ", ".join(f"`{name}`" for name in names) or "its columns"
