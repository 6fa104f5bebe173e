"""Failures of a query that nobody gets to know."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from holdfast.advice.source.evaluated import Evaluated
from holdfast.advice.source.hits import Hit

_WAITING: Final = frozenset(("awaitTermination", "awaitAnyTermination", "processAllAvailable"))
# Exceptions that a failed query raises where somebody waits for it.
_CAUGHT: Final = frozenset(("Exception", "BaseException", "StreamingQueryException", "PySparkException"))
_ENDING: Final = frozenset(("exit", "_exit", "quit", "abort", "kill"))


def ending_hits(found: Evaluated) -> Iterator[Hit]:
    """Where the failure of a query is caught, and the file goes on to end as if nothing had happened.

    A handler within a loop may start the query again, and a file that ends with a code of its own, or asks a
    query for its exception, may do so for this one: neither is reported.
    """
    nodes = list(ast.walk(found.tree))
    if any(_called(node) in _ENDING or _asks(node) for node in nodes):
        return
    looped = {
        id(inner) for node in nodes if isinstance(node, (ast.While, ast.For)) for inner in ast.walk(node)
    }
    for node in nodes:
        if not isinstance(node, ast.Try) or id(node) in looped:
            continue
        waits = any(_called(inner) in _WAITING for each in node.body for inner in ast.walk(each))
        for handler in node.handlers if waits else ():
            if _catches(handler) and _is_silent(handler):
                yield Hit(
                    "HF411", handler, "a query's failure is caught here, and the file ends with exit code 0"
                )


def _called(node: ast.AST) -> str:
    """The last part of the name of what is called or read."""
    if isinstance(node, ast.Call):
        node = node.func
        return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return node.name if isinstance(node, ast.alias) else ""


def _asks(node: ast.AST) -> bool:
    """Whether a query is asked for its exception; a logger is told one."""
    return isinstance(node, ast.Call) and _called(node) == "exception" and not node.args


def _catches(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {
        kind.id if isinstance(kind, ast.Name) else kind.attr if isinstance(kind, ast.Attribute) else ""
        for kind in kinds
    }
    return handler.type is None or bool(names & _CAUGHT)


def _is_silent(handler: ast.ExceptHandler) -> bool:
    """Whether a handler only speaks: it raises, returns, notes and decides nothing."""
    return all(isinstance(each, (ast.Pass, ast.Expr)) for each in handler.body)
