"""A parser for plain SELECT statements in the text of a program.

Statements with subqueries, set operations, table functions or unknown clauses are not analyzed and cause no
findings.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from holdfast.advice.source.calls import (
    BOUNDING,
    CallArguments,
    aggregated,
    columns_of,
    joined,
    selected_from,
    sql,
    with_operator,
)
from holdfast.advice.source.values import ColumnExpression, Const, Frame, Grouped

_TOKEN: Final = re.compile(
    r"""(?P<skip>\s+|--[^\n]*|/\*.*?\*/)
      |(?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
      |(?P<word>`(?:[^`]|``)+`|[A-Za-z_]\w*)
      |(?P<number>\d+(?:\.\d+)?\w*)
      |(?P<sign><=>|<=|>=|<>|!=|==|\|\||->|::|.)""",
    re.VERBOSE | re.DOTALL,
)
# Clauses in their required order.
_CLAUSES: Final = ("SELECT", "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT")
# Statements with any of these are not analyzed.
_MORE: Final = frozenset(
    ("WITH", "UNION", "INTERSECT", "EXCEPT", "MINUS", "LATERAL", "PIVOT", "UNPIVOT", "VALUES")
) | frozenset(("TABLESAMPLE", "QUALIFY", "WINDOW", "CLUSTER", "DISTRIBUTE", "SORT", "OFFSET", "NATURAL"))
_JOINS: Final = frozenset(("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "OUTER", "CROSS", "SEMI", "ANTI"))
_VIEW: Final = re.compile(
    r"\s*create\s+(?:or\s+replace\s+)?(?:global\s+)?temp(?:orary)?\s+view\s+(?:if\s+not\s+exists\s+)?`?(\w+)`?"
    r"\s+as\s+(?=select\b)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Token:
    """A token of SQL.

    Attributes:
        kind: "word" for a keyword or a name, "text" for a string literal, "number", or "sign" for an operator
            or a punctuation mark.
        written: The token as written.
    """

    kind: str
    written: str

    @property
    def key(self) -> str:
        """Return a word in upper case or a sign; empty for a quoted name, a string literal or a number."""
        return self.written.upper() if self.kind in ("word", "sign") and self.written[0] != "`" else ""

    @property
    def name(self) -> str:
        """Return the token as a name: in lower case, without backquotes."""
        return self.written.strip("`").lower()


@dataclass(frozen=True, slots=True)
class Joined:
    """A joined table, with its condition or None."""

    table: str
    condition: str | None


@dataclass(frozen=True, slots=True)
class Select:
    """A plain SELECT.

    Attributes:
        distinct: Whether this is a SELECT DISTINCT.
        items: The selected items as written, with `AS` before a name.
        table: The table in FROM.
        joined: The joined tables, in order.
        keys: The grouping expressions; None without GROUP BY.
        view: The temporary view that is created from the statement; None for none.
    """

    distinct: bool
    items: tuple[str, ...]
    table: str
    joined: tuple[Joined, ...]
    keys: tuple[str, ...] | None
    view: str | None = None


def select_in(text: str) -> Select | None:
    """Parse a text as a SELECT; None if it is not a plain SELECT."""
    made = _VIEW.match(text)
    tokens = _tokens(text if made is None else text[made.end() :])
    while tokens and tokens[-1].key == ";":
        tokens.pop()
    if not tokens or tokens[0].key != "SELECT":
        return None
    keys = [token.key for token in tokens]
    # A window is a function; braces and question marks are placeholders for other text.
    if keys.count("SELECT") > 1 or {";", "{", "?"} & set(keys) or (_MORE & set(keys)) - _called(tokens):
        return None
    clauses = _clauses(tokens)
    if clauses is None or "FROM" not in clauses:
        return None
    read = _tables(clauses["FROM"])
    chosen = clauses["SELECT"]
    distinct = bool(chosen) and chosen[0].key == "DISTINCT"
    items = [_aliased(item) for item in _split(chosen[1:] if distinct else chosen)]
    grouped = _keys(clauses["GROUP"], items) if "GROUP" in clauses else None
    if read is None or not items or grouped == ():
        return None
    view = None if made is None else made[1].lower()
    return Select(distinct, tuple(items), read[0], read[1], grouped, view)


def _tokens(text: str) -> list[Token]:
    return [
        Token(str(match.lastgroup), match[0]) for match in _TOKEN.finditer(text) if match.lastgroup != "skip"
    ]


def _called(tokens: Sequence[Token]) -> set[str]:
    """Return the words that are called as functions, such as `window(…)`."""
    return {one.key for one, other in pairwise(tokens) if other.key == "("}


def _outer(tokens: Sequence[Token]) -> Iterator[tuple[int, Token]]:
    """Yield the tokens outside parentheses, each with its position."""
    depth = 0
    for at, token in enumerate(tokens):
        depth -= token.key in (")", "]")
        if depth == 0 and token.key not in (")", "]"):
            yield at, token
        depth += token.key in ("(", "[")


def _clauses(tokens: Sequence[Token]) -> dict[str, list[Token]] | None:
    """Return the tokens of each clause; None if their order is not that of a SELECT."""
    starts = [(at, token.key) for at, token in _outer(tokens) if token.key in _CLAUSES]
    order = [_CLAUSES.index(key) for _, key in starts]
    if order != sorted(set(order)):
        return None
    ends = [at for at, _ in starts[1:]] + [len(tokens)]
    return {key: list(tokens[at + 1 : end]) for (at, key), end in zip(starts, ends, strict=True)}


def _split(tokens: Sequence[Token], sign: str = ",") -> list[list[Token]]:
    """Split tokens at signs outside parentheses."""
    cuts = [-1, *(at for at, token in _outer(tokens) if token.key == sign), len(tokens)]
    return [list(tokens[first + 1 : last]) for first, last in pairwise(cuts)]


def _written(tokens: Sequence[Token]) -> str:
    """Join tokens into a text, with string literals emptied so that their words do not count as columns."""
    words = ("''" if token.kind == "text" else token.written.strip("`") for token in tokens)
    return re.sub(r" ?([.(]) ?", r"\1", " ".join(words)).replace(" )", ")")


def _aliased(item: Sequence[Token]) -> str:
    """Return an item of a selection with `AS` before its name."""
    if len(item) < 2 or item[-1].kind != "word" or item[-1].key in ("END", "NULL", "TRUE", "FALSE"):
        return _written(item)
    before = item[-2]
    if before.key == "AS":
        return f"{_written(item[:-2])} AS {item[-1].name}"
    if before.kind == "sign" and before.key != ")":
        return _written(item)
    return f"{_written(item[:-1])} AS {item[-1].name}"


def _keys(tokens: Sequence[Token], items: Sequence[str]) -> tuple[str, ...] | None:
    """Return the grouping columns; a number or alias stands for its item. Empty if undetermined."""
    if (
        not tokens
        or tokens[0].key != "BY"
        or {"CUBE", "ROLLUP", "SETS", "ALL"} & {each.key for each in tokens}
    ):
        return ()
    named = {alias: text for text, _, alias in (item.rpartition(" AS ") for item in items) if text}
    found = []
    for part in _split(tokens[1:]):
        text = _written(part)
        if text.isdecimal():
            if not 0 < int(text) <= len(items):
                return ()
            item = items[int(text) - 1]
            text = item.rpartition(" AS ")[0] or item
        found.append(named.get(text.lower(), text))
    return tuple(found)


def _tables(tokens: Sequence[Token]) -> tuple[str, tuple[Joined, ...]] | None:
    """Return the tables that are read and joined; None if a source is not a table."""
    parts: list[list[Token]] = [[]]
    for at, token in _outer(tokens):
        if token.key == "JOIN":
            parts.append([])
        elif token.key not in _JOINS or (at + 1 < len(tokens) and tokens[at + 1].key == "("):
            parts[-1].append(token)
        if token.key == "(":
            end = next((n for n, each in _outer(tokens) if n > at), len(tokens))
            parts[-1] += tokens[at + 1 : end]
    first = _table(parts[0])
    others = [_joined(part) for part in parts[1:]]
    if first is None or None in others:
        return None
    return first, tuple(other for other in others if other is not None)


def _table(tokens: Sequence[Token]) -> str | None:
    """Return the name of a table, which may be followed by an alias."""
    words = [token for token in tokens if token.key != "AS"]
    if not words or any(token.kind != "word" and token.key != "." for token in words):
        return None
    length = 1
    while length + 1 < len(words) and words[length].key == ".":
        length += 2
    return ".".join(each.name for each in words[:length:2]) if len(words) <= length + 1 else None


def _joined(tokens: Sequence[Token]) -> Joined | None:
    at = next((n for n, token in enumerate(tokens) if token.key in ("ON", "USING")), len(tokens))
    table = _table(tokens[:at])
    if table is None:
        return None
    return Joined(table, _written(tokens[at + 1 :]) if at < len(tokens) else None)


# Expressions with few results.
_FEW: Final = re.compile(r"[%<>=]|\b(?:case|mod|is|in|between|like|not)\b", re.IGNORECASE)


def selected(select: Select, views: Mapping[str, Frame], node: ast.Call) -> Frame | None:
    """Return the DataFrame of a SELECT; None if it reads no view of the file.

    Args:
        select: The SELECT.
        views: The DataFrames by view name, in lower case.
        node: The call that contains the text.
    """
    tables = [select.table, *(each.table for each in select.joined)]
    if not views.keys() & set(tables):
        return None
    frame = views.get(select.table, Frame(None, known=False))
    for other in select.joined:
        right = views.get(other.table, Frame(None, known=False))
        frame = joined(frame, "JOIN", CallArguments((right, _condition(other)), {}), node)
    items = tuple(Const(item) for item in select.items)
    chosen = ColumnExpression()
    for item in select.items:
        chosen = chosen.merged(_columns(item))
    if select.keys is not None:
        keys = ColumnExpression()
        for key in select.keys:
            keys = keys.merged(_columns(key))
        frame = aggregated(Grouped(frame, keys), "GROUP BY", CallArguments((chosen,), {}), node)
    frame = selected_from(frame, "selectExpr", CallArguments(items, {}), node)
    if select.distinct:
        every = any(item.endswith("*") for item in select.items)
        keys = ColumnExpression() if every else chosen
        frame = with_operator(frame, "dedupe", node, "SELECT DISTINCT", keys=keys)
    return frame


def _condition(other: Joined) -> ColumnExpression:
    """Return the condition of a join as columns; empty without a condition."""
    return ColumnExpression() if other.condition is None else sql(other.condition)


def _columns(text: str) -> ColumnExpression:
    """Return an expression as columns: a name by its last part."""
    expression, _, _ = text.partition(" AS ")
    parts = expression.split(".")
    bare = all(part.isidentifier() for part in parts)
    if bare:
        return columns_of(Const(parts[-1].lower()))
    made = sql(expression)
    return replace(made, calls=made.calls | {BOUNDING}) if _FEW.search(expression) else made
