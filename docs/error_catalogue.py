"""Read every error that the source raises: its kind, text, expected values and hint."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import BY_KIND
from holdfast.extras import MissingPackage
from holdfast.ownership.election import LeadershipLost
from holdfast.quantities import counted

BY_NAME = {kind.__name__: kind for kind in BY_KIND.values()}
_KINDS = {kind.__name__: kind.__name__ for kind in BY_KIND.values()} | {
    MissingPackage.__name__: "Unsupported",
    LeadershipLost.__name__: "Conflict",
}
UNKNOWN = "{…}"
_PLACEHOLDER = re.compile(r"\{[^}]*\}")
_PARTS = ("where", "found", "expected", "hint")


@dataclass(frozen=True)
class RaisedError:
    """A statement of the source that creates an error; parts that it does not give are empty."""

    kind: str
    code: str
    room: str
    place: str
    fact: str
    found: str
    expected: str
    hint: str
    has_details: bool

    @property
    def is_passed_on(self) -> bool:
        """Return True if the statement passes on the text of a different error."""
        return _PLACEHOLDER.fullmatch(self.fact) is not None

    def row(self) -> str:
        """Return the row of the table."""
        return f"| `{self.code}` | {_cell(self.fact)} | {_cell(self.expected)} | {_cell(self.hint)} |"


class _Module:
    """What is needed of a module: its tree is not kept, which the collector of garbage would walk through."""

    def __init__(self, file: Path, package: Path) -> None:
        self.file = file.relative_to(package)
        self.name = ".".join((package.name, *self.file.with_suffix("").parts))
        tree = ast.parse(file.read_text(encoding="utf-8"))
        nodes = list(ast.walk(tree))
        self.constants = _constants(tree)
        self.imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
        self.calls = [
            (node, _facts(node.args[0], nodes) or [node.args[0]])
            for node in nodes
            if isinstance(node, ast.Call) and _name(node.func) in _KINDS and node.args
        ]


@functools.cache
def raised_errors(package: Path) -> tuple[RaisedError, ...]:
    """Return every error that a package creates, in the order of its files."""
    modules = [_Module(file, package) for file in sorted(package.rglob("*.py")) if file.name != "errors.py"]
    constants = {module.name: module.constants for module in modules}
    return tuple(error for module in modules for error in _errors_in(module, constants))


def error_codes(errors: Iterable[RaisedError], former: Mapping[str, Any]) -> dict[str, Any]:
    """Return the explanation of each code for `holdfast explain`: texts, expected values and hints.

    Args:
        errors: The errors of the source.
        former: The previous explanations; a code that no error has any more is kept.
    """
    listed: dict[str, Any] = {}
    for error in errors:
        if not error.code.startswith("HF-"):
            continue
        entry = listed.setdefault(
            error.code, {"kind": BY_NAME[error.kind].kind, "room": error.room.rstrip("/")}
        )
        for name in ("fact", "found", "expected", "hint"):
            text = " ".join(getattr(error, name).split())
            if text and text not in entry.setdefault(f"{name}s", []):
                entry[f"{name}s"].append(text)
    retired = {code: {**entry, "retired": True} for code, entry in former.items() if code not in listed}
    return dict(sorted({**listed, **retired}.items()))


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """Return the texts that a module defines at its top level, by name."""
    named = {}
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            named[node.target.id] = node.value
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            named[node.targets[0].id] = node.value
    return {
        name: value
        for name, value in named.items()
        if isinstance(value, ast.JoinedStr)
        or (isinstance(value, ast.Constant) and isinstance(value.value, (str, int)))
    }


def _imported(module: _Module, constants: Mapping[str, dict[str, ast.expr]]) -> dict[str, ast.expr]:
    """Return the texts of other modules, by the names under which a module imports them."""
    return {
        alias.asname or alias.name: own[alias.name]
        for node in module.imports
        for own in [constants.get(node.module or "", {})]
        for alias in node.names
        if alias.name in own
    }


def _errors_in(module: _Module, of_modules: Mapping[str, dict[str, ast.expr]]) -> Iterator[RaisedError]:
    file = module.file
    room = f"{file.parts[0]}/" if len(file.parts) > 1 else file.name
    constants = {**_imported(module, of_modules), **module.constants}
    for node, facts in module.calls:
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        texts = {part: _text(given[part], constants) if part in given else "" for part in _PARTS}
        for fact in facts:
            yield RaisedError(
                kind=_KINDS[_name(node.func)],
                code=_text(given["code"], {}) if "code" in given else "",
                room=room,
                place=f"{file.as_posix()}:{node.lineno}",
                fact=_text(fact, constants),
                found=texts["found"],
                expected=texts["expected"],
                hint=texts["hint"],
                has_details=None in given or any(texts.values()),
            )


def _facts(fact: ast.expr, nodes: Sequence[ast.AST]) -> list[ast.expr]:
    """Return the texts of a variable of a function: those assigned to it, or passed by the callers."""
    if not isinstance(fact, ast.Name):
        return []
    owners = [
        node
        for node in nodes
        if isinstance(node, ast.FunctionDef) and node.lineno <= fact.lineno <= (node.end_lineno or 0)
    ]
    if not owners:
        return []
    owner = owners[-1]  # the innermost
    assigned = [
        node.value
        for node in ast.walk(owner)
        if isinstance(node, ast.Assign) and any(_name(target) == fact.id for target in node.targets)
    ]
    names = [argument.arg for argument in owner.args.args if argument.arg not in ("self", "cls")]
    if assigned or fact.id not in names:
        return assigned
    at = names.index(fact.id)
    return [
        node.args[at]
        for node in nodes
        if isinstance(node, ast.Call) and _name(node.func) == owner.name and len(node.args) > at
    ]


def _name(node: ast.expr) -> str:
    """Return the name of a name or an attribute."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _text(node: ast.expr, constants: Mapping[str, ast.expr]) -> str:
    """Return the text of an expression, with values replaced by their names."""
    if isinstance(node, ast.Constant):
        return "" if node.value is None else str(node.value)
    if isinstance(node, ast.Name) and node.id in constants:
        return _text(constants[node.id], constants)
    between, parts = _parts(node)
    if parts:
        return between.join(filter(None, (_text(part, constants) for part in parts)))
    return _placeholder(node)


def _parts(node: ast.expr) -> tuple[str, list[ast.expr]]:
    """Return the parts of a joined text, and the separator between them."""
    if isinstance(node, ast.JoinedStr):
        return "", node.values
    if isinstance(node, ast.FormattedValue):
        return "", [node.value]
    if isinstance(node, ast.Call) and _name(node.func) == "counted":
        number, noun = node.args
        return "", [number, ast.Constant(counted(2, ast.literal_eval(noun)).removeprefix("2"))]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return "", [node.left, node.right]
    if isinstance(node, ast.IfExp):
        return " / ", [node.body, node.orelse]
    return "", []


def _placeholder(node: ast.expr) -> str:
    """Return the name of a value: the argument of a call, or the items of a join."""
    if isinstance(node, ast.Call) and _name(node.func) == "join" and node.args:
        (items,) = node.args
        return _text(items.elt, {}) if isinstance(items, ast.GeneratorExp) else _placeholder(items)
    if isinstance(node, ast.Call):
        return _placeholder(node.args[0] if isinstance(node.func, ast.Name) and node.args else node.func)
    if isinstance(node, ast.Subscript):
        return _placeholder(node.value)
    name = _name(node).strip("_")
    return f"{{{name}}}" if name else UNKNOWN


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;") or "–"
