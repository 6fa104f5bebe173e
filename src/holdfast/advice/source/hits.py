"""A place in code where a rule was seen to be broken."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from holdfast.advice.source.values import Columns


@dataclass(frozen=True, slots=True)
class Hit:
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
        """Where in that line, from 1."""
        node = self.node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return (node.func.end_col_offset or len(node.func.attr)) - len(node.func.attr) + 1
        return int(getattr(node, "col_offset", 0)) + 1


def listed(columns: Columns) -> str:
    """Columns as a person reads them."""
    names = sorted(columns.names) or sorted(f"{call}(…)" for call in columns.calls)
    return ", ".join(f"`{name}`" for name in names) or "its columns"
