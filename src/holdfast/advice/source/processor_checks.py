"""Lint checks for processor classes: unbounded state, whole rows in lists, numbers as text, and no state."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from holdfast.advice.source.calls import Evaluated
from holdfast.advice.source.values import CodeLocation

_SPARK_BASES: Final = frozenset(("StatefulProcessor",))
_OWN_BASES: Final = frozenset(("holdfast.Keyed", "holdfast.KeyedTable"))
# The state methods of Spark's handle, each with the position of its TTL argument.
_GETTERS: Final = {"getValueState": 2, "getListState": 2, "getMapState": 3}
_OWN_STATES: Final = frozenset(("value", "list", "map", "reducing", "aggregating"))
_ENDING: Final = frozenset(("clear", "removeKey", "registerTimer", "deleteTimer", "timer", "pop", "remove"))
_APPENDING: Final = frozenset(("append", "appendValue", "appendList", "extend"))
_PAYLOADS: Final = frozenset(("payload", "body", "raw", "raw_json", "raw_event", "blob", "message_body"))
_WHOLE: Final = frozenset(("asDict", "_asdict", "itertuples", "to_dict"))


def processor_hits(found: Evaluated) -> Iterator[CodeLocation]:
    """Yield the violations in the processor classes of a file."""
    for node in ast.walk(found.tree):
        if not isinstance(node, ast.ClassDef) or len(node.bases) != 1:
            continue
        base = _full_name(node.bases[0], found.imports)
        if base.rpartition(".")[2] in _SPARK_BASES and base.startswith("pyspark."):
            yield from _spark_hits(node)
        elif base in _OWN_BASES:
            yield from _own_hits(node, found.imports)


def _full_name(node: ast.expr, imports: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return imports.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return f"{_full_name(node.value, imports)}.{node.attr}"
    return ""


def _spark_hits(node: ast.ClassDef) -> Iterator[CodeLocation]:
    calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
    states = [(call, name) for call in calls if (name := _attribute(call)) in _GETTERS]
    handed_on = any(
        isinstance(argument, ast.Name) and argument.id == "handle" for call in calls for argument in call.args
    )
    handled = not handed_on and _method(node, "handleInputRows") is not None
    if handled and not states and not any(_attribute(call) in _ENDING | {"listTimers"} for call in calls):
        yield CodeLocation("HF507", node, f"{node.name} declares no state and no timer")
    if not any(_attribute(call) in _ENDING for call in calls):
        for call, name in states:
            if not _has_ttl(call, _GETTERS[name or ""]):
                yield CodeLocation(
                    "HF503",
                    call,
                    f"{node.name} keeps {_state_text(call)} without a TTL, and removes nothing",
                )
    lists = set(_state_attributes(node, "getListState"))
    yield from _row_hits(node, lists)
    for call in calls:
        if _attribute(call) == "update" and any(_is_text_of_number(each) for each in ast.walk(call)):
            yield CodeLocation("HF506", call, "a number is converted to text for state")


def _has_ttl(call: ast.Call, position: int) -> bool:
    given = call.args[position] if len(call.args) > position else None
    for keyword in call.keywords:
        if keyword.arg is None or "ttl" in keyword.arg.lower():
            given = keyword.value
    return given is not None and not (isinstance(given, ast.Constant) and not given.value)


def _state_text(call: ast.Call) -> str:
    first = call.args[0] if call.args else None
    return f"the state `{first.value!s}`" if isinstance(first, ast.Constant) else "a state"


def _state_attributes(node: ast.ClassDef, getter: str) -> Iterator[str]:
    for each in ast.walk(node):
        if (
            isinstance(each, ast.Assign)
            and isinstance(each.value, ast.Call)
            and _attribute(each.value) == getter
        ):
            yield from (target.attr for target in each.targets if isinstance(target, ast.Attribute))


def _own_hits(node: ast.ClassDef, imports: dict[str, str]) -> Iterator[CodeLocation]:
    states = _own_states(node, imports)
    calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
    ends = any(_attribute(call) in _ENDING for call in calls) or any(
        isinstance(each, ast.Delete) for each in ast.walk(node)
    )
    handled = any(isinstance(each, ast.FunctionDef) and each.name.startswith("on_") for each in node.body)
    if handled and not ends and not any(_has_descriptor(statement) for statement in node.body):
        yield CodeLocation("HF507", node, f"{node.name} declares no state and sets no timer")
    for name, (call, _) in states.items():
        if not ends and not any(keyword.arg in (None, "ttl") for keyword in call.keywords):
            seen = f"{node.name} keeps `{name}` without a TTL, and removes nothing"
            yield CodeLocation("HF504", call, seen)
    yield from _row_hits(node, {name for name, (_, kind) in states.items() if kind == "list"})
    texts = {name: call for name, (call, kind) in states.items() if kind == "value" and _is_text_type(call)}
    yield from _text_hits(node, texts)


def _own_states(node: ast.ClassDef, imports: dict[str, str]) -> dict[str, tuple[ast.Call, str]]:
    """Return the states that a Holdfast class declares, each with its kind."""
    states: dict[str, tuple[ast.Call, str]] = {}
    for statement in node.body:
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
            continue
        room, _, kind = _full_name(statement.value.func, imports).rpartition(".")
        if room == "holdfast" and kind in _OWN_STATES:
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    states[target.id] = (statement.value, kind)
    return states


def _text_hits(node: ast.ClassDef, texts: dict[str, ast.Call]) -> Iterator[CodeLocation]:
    """Find text states whose default is a number, or that are assigned one."""
    for name, call in texts.items():
        defaults = [keyword.value for keyword in call.keywords if keyword.arg == "default"]
        if any(isinstance(each, ast.Constant) and _is_number(each.value) for each in defaults):
            yield CodeLocation("HF506", call, f"`{name}` is text with a number as its default")
    for each in ast.walk(node):
        if isinstance(each, ast.Assign) and _is_text_of_number(each.value):
            for target in each.targets:
                if isinstance(target, ast.Attribute) and target.attr in texts:
                    yield CodeLocation("HF506", each, f"a number is converted to text for `{target.attr}`")


def _is_number(value: object) -> bool:
    return str(value).lstrip("-").replace(".", "", 1).isdecimal()


def _has_descriptor(statement: ast.stmt) -> bool:
    """Return whether a statement may declare a state: any call or name that is not a plain value."""
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return not isinstance(statement.value, ast.Constant)
    return False


def _is_text_type(call: ast.Call) -> bool:
    first = call.args[0] if call.args else None
    if isinstance(first, ast.Name):
        return first.id == "str"
    return isinstance(first, ast.Constant) and first.value == "string"


def _is_text_of_number(node: ast.AST) -> bool:
    """Return whether an expression is `str(…)` of a sum or of a conversion to a number."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str"):
        return False
    return any(
        (
            isinstance(inner, ast.Call)
            and isinstance(inner.func, ast.Name)
            and inner.func.id in ("int", "float")
        )
        or (isinstance(inner, ast.BinOp) and isinstance(inner.op, (ast.Sub, ast.Mult, ast.Div)))
        or (
            isinstance(inner, ast.BinOp)
            and isinstance(inner.op, ast.Add)
            and isinstance(inner.right, ast.Constant)
            and isinstance(inner.right.value, (int, float))
        )
        for inner in ast.walk(node)
    )


def _row_hits(node: ast.ClassDef, lists: set[str]) -> Iterator[CodeLocation]:
    """Find whole rows, or columns with large payloads, that are added to lists."""
    for method in node.body:
        if not isinstance(method, ast.FunctionDef):
            continue
        rows = _row_names(method)
        for call in ast.walk(method):
            if not isinstance(call, ast.Call) or _attribute(call) not in _APPENDING or not call.args:
                continue
            owner = call.func.value if isinstance(call.func, ast.Attribute) else None
            if not isinstance(owner, ast.Attribute) or owner.attr not in lists:
                continue
            if any(_is_whole(argument, rows) for argument in call.args):
                yield CodeLocation("HF505", call, f"whole rows are added to the list `{owner.attr}`")


def _row_names(method: ast.FunctionDef) -> set[str]:
    """Return the names of a method's variables that contain one row or all rows."""
    names = [each.arg for each in method.args.args]
    given = set()
    if method.name == "handleInputRows" and len(names) > 2:
        given = {names[2]}
    elif method.name in ("on_event", "on_key") and len(names) > 1:
        given = {names[1 if method.name == "on_event" else 2]}
    for each in ast.walk(method):
        if not isinstance(each, (ast.For, ast.comprehension)):
            continue
        if isinstance(each.target, ast.Name) and _gives_rows(each.iter, given):
            given.add(each.target.id)
    return given


def _gives_rows(node: ast.expr, rows: set[str]) -> bool:
    """Return whether iterating an expression gives rows or frames of rows, not the values of a column."""
    if isinstance(node, ast.Name):
        return node.id in rows
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in _WHOLE | {"iterrows", "to_pylist"} and _root(node.func.value) in rows
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("list", "sorted", "tuple", "reversed")
        and bool(node.args)
        and _gives_rows(node.args[0], rows)
    )


def _is_whole(node: ast.expr, rows: set[str]) -> bool:
    """Return whether an expression contains a whole row, or a column with a payload."""
    whole = False
    if isinstance(node, ast.Name):
        whole = node.id in rows
    elif isinstance(node, ast.Attribute):
        whole = node.attr in _PAYLOADS and _root(node.value) in rows
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        whole = node.slice.value in _PAYLOADS and _root(node.value) in rows
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _WHOLE:
        whole = _root(node.func.value) in rows
    elif isinstance(node, ast.Call):
        whole = any(_is_whole(argument, rows) for argument in node.args)
    elif isinstance(node, (ast.Tuple, ast.List)):
        whole = any(_is_whole(item, rows) for item in node.elts)
    elif isinstance(node, ast.ListComp):
        whole = _is_whole(node.elt, rows)
    return whole


def _root(node: ast.AST) -> str | None:
    return node.id if isinstance(node, ast.Name) else None


def _attribute(call: ast.Call) -> str | None:
    return call.func.attr if isinstance(call.func, ast.Attribute) else None


def _method(node: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == name), None)
