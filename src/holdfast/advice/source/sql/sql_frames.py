"""What a SELECT makes of the views of a file."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from holdfast.advice.source.column_calls import BOUNDING, Arguments, columns_of, sql
from holdfast.advice.source.frame_calls import aggregated, joined, selected_from, with_operator
from holdfast.advice.source.sql.sql_text import Joined, Select
from holdfast.advice.source.values import Columns, Const, Frame, Grouped

# Expressions that have few results.
_FEW: Final = re.compile(r"[%<>=]|\b(?:case|mod|is|in|between|like|not)\b", re.IGNORECASE)


def selected(select: Select, views: Mapping[str, Frame], node: ast.Call) -> Frame | None:
    """The frame that a SELECT gives; None where it reads no view of the file.

    Args:
        select: The SELECT.
        views: The frames that have a name, in small letters.
        node: The call that has the text.
    """
    tables = [select.table, *(each.table for each in select.joined)]
    if not views.keys() & set(tables):
        return None
    frame = views.get(select.table, Frame(None, known=False))
    for other in select.joined:
        right = views.get(other.table, Frame(None, known=False))
        frame = joined(frame, "JOIN", Arguments((right, _condition(other)), {}), node)
    items = tuple(Const(item) for item in select.items)
    chosen = Columns()
    for item in select.items:
        chosen = chosen.merged(_columns(item))
    if select.keys is not None:
        keys = Columns()
        for key in select.keys:
            keys = keys.merged(_columns(key))
        frame = aggregated(Grouped(frame, keys), "GROUP BY", Arguments((chosen,), {}), node)
    frame = selected_from(frame, "selectExpr", Arguments(items, {}), node)
    if select.distinct:
        every = any(item.endswith("*") for item in select.items)
        keys = Columns() if every else chosen
        frame = with_operator(frame, "dedupe", node, "SELECT DISTINCT", keys=keys)
    return frame


def _condition(other: Joined) -> Columns:
    """The condition of a join; without one nothing is compared."""
    return Columns() if other.condition is None else sql(other.condition)


def _columns(text: str) -> Columns:
    """An expression as columns: a name by its last part."""
    expression, _, _ = text.partition(" AS ")
    parts = expression.split(".")
    bare = all(part.isidentifier() for part in parts)
    if bare:
        return columns_of(Const(parts[-1].lower()))
    made = sql(expression)
    return replace(made, calls=made.calls | {BOUNDING}) if _FEW.search(expression) else made
