"""Expressions over columns, and the arguments of calls."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from holdfast.advice.source.values import NOTHING, Columns, Const, Sequence

# Stands among the functions of an expression for an operation that has few results, such as `% 8`.
BOUNDING: Final = "%"
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
        return (
            value.value if isinstance(value, Const) and value.whole and isinstance(value.value, str) else None
        )

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


def of_function(name: str, given: Arguments) -> Columns:
    """What a function over columns gives."""
    if name in ("col", "column"):
        return columns_of(given.get(0, "col"))
    if name == "expr":
        text = given.text(0, "str")
        return Columns(known=False) if text is None else sql(text)
    if name == "lit":
        return Columns(known=True)
    if name in ("window", "session_window"):
        time = columns_of(given.get(0, "timeColumn"))
        made = given.columns()
        through = NOTHING if time.names else time.used
        return replace(made.inside(), calls=made.calls | {name}, aliases=(), unmarked=made.unmarked | through)
    return replace(given.columns().inside(), calls=given.columns().calls | {name}, aliases=(), known=True)


def of_columns(base: Columns, name: str, given: Arguments) -> Columns:
    """What a method of a column gives."""
    if name in ("alias", "name"):
        alias = given.text(0, "alias")
        return base if alias is None else replace(base, aliases=((alias.lower(), base),))
    if name in ("asc", "desc"):
        return base
    merged = base.merged(given.columns()).inside()
    return replace(merged, compares=merged.compares or name == "between", calls=merged.calls | {name})


def combined(node: ast.expr, values: list[Any]) -> Columns:
    """An expression out of others, of which one at least is of columns."""
    found = Columns()
    for value in values:
        found = found.merged(value if isinstance(value, Columns) else Columns())
    ordered = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
    compares = isinstance(node, ast.Compare) and any(isinstance(each, ordered) for each in node.ops)
    bounding = isinstance(node, ast.Compare) or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod))
    calls = found.calls | ({BOUNDING} if bounding else frozenset())
    return replace(found.inside(), compares=found.compares or compares, calls=calls)
