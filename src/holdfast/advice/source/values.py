"""The values that names of a program represent, and locations in its code.

A value is what a call on it needs to know: a frame has its watermarks and its stateful operators behind it.
What cannot be told is `Unknown`, and a frame that came from there is not `known`: what it lacks is no
evidence.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

NOTHING: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value of which nothing is known."""


UNKNOWN: Final = Unknown()


@dataclass(frozen=True, slots=True)
class Module:
    """A module, or something in one, by its full name."""

    name: str


@dataclass(frozen=True, slots=True)
class Const:
    """A text or number; of an f-string only how it begins is known."""

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
        names: The columns that it is, each by itself: `ts` for `F.col("ts")`, nothing for `F.year("ts")`.
        used: All columns that it reads.
        calls: The functions in it, by the last part of their names.
        aliases: The names that it gives, each with the expression that gets it.
        texts: The texts of SQL in it.
        compares: Whether it compares by more than equality.
        known: Whether all of it could be told.
        unmarked: Columns whose mark of event time it does not have, if they get one: those of a frame before
            its watermark, and those that a window takes through a function.
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
        """Both beside each other."""
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
        """The same as part of something larger, which is not a column by itself."""
        return replace(self, names=NOTHING)


@dataclass(frozen=True, slots=True)
class Watermark:
    """A watermark that was declared.

    Attributes:
        column: The column of event time; None where it could not be told.
        delay: The delay as it was written; None where it could not be told.
        node: The call.
    """

    column: str | None
    delay: str | None
    node: ast.AST


@dataclass(frozen=True, slots=True)
class Stateful:
    """A stateful operator of a frame.

    Attributes:
        kind: `aggregate`, `dedupe`, `dedupe-within`, `join`, `groups`, `processor`, `keyed` or `own` for
            operators of Holdfast that end by themselves.
        node: The call.
        method: The name of the method.
        keys: What it groups by, or the condition of a join.
        columns: What it computes.
        watermarks: The watermarks before it; of a join those of its left side.
        other: Of a join the watermarks of its right side.
        known: Whether everything before it could be told.
        time_columns: The columns that carry the event time or a window of it.
        random_columns: The columns made by chance.
        arguments: The arguments of the call, positions as numbers.
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
    """A frame.

    Attributes:
        streaming: Whether it is a stream; None where that is not known yet.
        known: Whether everything before it could be told.
        sources: The formats that it is read from.
        watermarks: All watermarks before it.
        operators: The stateful operators before it, in order.
        time_columns: The columns that carry the event time or a window of it.
        random_columns: The columns made by chance.
        made_by: The call that made it.
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
        """Both inputs of one frame."""
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
    """The items without those that represent the same call twice."""
    return tuple({id(item.node): item for item in items}.values())


@dataclass(slots=True)
class ReaderValue:
    """The result of `readStream` or `read`; options are noted in place, as Spark does."""

    streaming: bool
    options: dict[str, Any] = field(default_factory=dict)
    format: str | None = None


@dataclass(frozen=True, slots=True)
class Grouped:
    """A frame that is grouped."""

    frame: Frame
    keys: ColumnExpression


@dataclass(frozen=True, slots=True)
class OwnStream:
    """The result of `hf.keyed`, `hf.operate` or `hf.windowed`."""

    frame: Frame
    kind: str


@dataclass(slots=True)
class WriterValue:
    """The result of `writeStream` or `hf.sink`; options are noted in place, as Spark does.

    Attributes:
        frame: What is written.
        node: Where the writing begins.
        own: Whether `hf.sink` made it.
        options: Options by their names in small letters, each with the node that sets it.
        format: The format.
        mode: The output mode.
        triggered: Whether a trigger was given.
        ends: Whether it is one that ends, such as availableNow.
        function: What foreachBatch calls.
        known: Whether all options could be told.
        started: The call that starts it.
        nodes: The nodes that set format, mode and function, by these words.
        path: The path or table that it was given.
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
    """A builder of a session."""

    node: ast.AST


@dataclass(frozen=True, slots=True)
class SessionValue:
    """A session that the file has built."""


@dataclass(slots=True)
class ProgramSettings:
    """The settings of Spark that a file makes.

    Attributes:
        made: Each with its value and where it stands; the last one counts.
        known: Whether all of them could be told.
        built: Where the session is built; None where the file builds none.
        own: Whether Holdfast makes the session.
        master: Where Spark runs, as far as the file says.
    """

    made: dict[str, tuple[Any, ast.AST]] = field(default_factory=dict)
    known: bool = True
    built: ast.AST | None = None
    own: bool = False
    master: str | None = None

    def text(self, key: str) -> str | None:
        """A setting as Spark reads it; None where it is not made, or cannot be told."""
        value, _ = self.made.get(key, (None, None))
        if isinstance(value, Const) and value.whole and value.value is not None:
            return str(value.value).lower() if isinstance(value.value, bool) else str(value.value)
        return None


@dataclass(frozen=True, slots=True)
class CodeLocation:
    """One place.

    Attributes:
        rule: The id of the rule.
        node: The code.
        seen: What was seen there.
    """

    rule: str
    node: ast.AST
    seen: str

    @property
    def line(self) -> int:
        """The line of the name that is called: in a chain not the first one."""
        node = self.node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return node.func.end_lineno or node.lineno
        return getattr(node, "lineno", 1)

    @property
    def column(self) -> int:
        """The column in that line, from 1."""
        node = self.node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return (node.func.end_col_offset or len(node.func.attr)) - len(node.func.attr) + 1
        return int(getattr(node, "col_offset", 0)) + 1


def listed(columns: ColumnExpression) -> str:
    """Columns as a person reads them."""
    names = sorted(columns.names) or sorted(f"{call}(…)" for call in columns.calls)
    return ", ".join(f"`{name}`" for name in names) or "its columns"
