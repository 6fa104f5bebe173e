"""The evaluation of a program's statements without executing them.

Statements are followed in order, both branches of a condition, and calls into functions and methods of the
file. A value is unknown if two branches differ or if its name is defined outside the file.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from holdfast.advice.source.calls import (
    FRAME_METHODS,
    CallArguments,
    Evaluated,
    columns_of,
    combined,
    note_dict,
    note_setting,
    of_builder,
    of_columns,
    of_frame,
    of_function,
    of_grouped,
    of_holdfast,
    of_own_stream,
    of_reader,
    of_writer,
)
from holdfast.advice.source.sql import select_in, selected
from holdfast.advice.source.values import (
    UNKNOWN,
    Builder,
    Class,
    ColumnExpression,
    Const,
    Frame,
    Function,
    Grouped,
    Instance,
    Module,
    OwnStream,
    Pairs,
    ReaderValue,
    Sequence,
    SessionValue,
    Unknown,
    WriterValue,
)

FUNCTIONS: Final = "pyspark.sql.functions"
# The depth to which calls of the file's own functions are followed, and the number of expressions.
_DEPTH: Final = 12
_MOST: Final = 100_000
# Functions that return their argument.
_HANDING_ON: Final = frozenset(("functools.partial", "builtins.list", "builtins.tuple", "builtins.sorted"))
_Def = (ast.FunctionDef, ast.AsyncFunctionDef)


class _Enough(Exception):
    """An exception that ends the evaluation of a file at its limit."""


def evaluate(tree: ast.Module) -> Evaluated:
    """Evaluate the statements of a file."""
    run = _Run(Evaluated(tree))
    try:
        run.block(tree.body, run.globals)
        run.whatever_is_left()
    except (_Enough, RecursionError):
        run.found.settings.known = False  # unevaluated code may create some
        run.found.complete = False
    return run.found


class _Run:
    """The evaluation of one file."""

    def __init__(self, found: Evaluated) -> None:
        self.found = found
        self.globals: dict[str, Any] = {}
        self.homes: dict[int, dict[str, Any]] = {}
        self.entered: set[int] = set()
        self.active: list[int] = []
        self.returned: list[list[Any]] = []
        self.star = False
        self.views: dict[str, Frame] = {}
        self.steps = 0
        self.steps_by_kind: tuple[tuple[type, Callable[..., Any]], ...] = (
            (Frame, self._framed),
            (Grouped, of_grouped),
            (OwnStream, of_own_stream),
            (ReaderValue, self._read),
            (WriterValue, self._written),
            (ColumnExpression, lambda base, name, given, _node: of_columns(base, name, given)),
            (Builder, partial(of_builder, found.settings)),
            (Instance, self._of_instance),
            (SessionValue, self._of_session),
        )
        for node in ast.walk(found.tree):
            if isinstance(node, _Def):
                found.functions[node.name] = node
            if isinstance(node, ast.Dict):
                note_dict(found.settings, node)

    # Statements.

    def block(self, body: Iterable[ast.stmt], names: dict[str, Any]) -> bool:
        """Evaluate statements; return whether they end their block."""
        return any(self.statement(node, names) for node in body)

    def statement(self, node: ast.stmt, names: dict[str, Any]) -> bool:
        """Evaluate a statement; return whether it ends its block."""
        step = getattr(self, f"_{type(node).__name__.lower()}", None)
        return bool(step(node, names)) if step is not None else False

    def _import(self, node: ast.Import, names: dict[str, Any]) -> None:
        for alias in node.names:
            bound = alias.asname or alias.name.partition(".")[0]
            full = alias.name if alias.asname else bound
            names[bound] = Module(full)
            self.found.imports[bound] = full

    def _importfrom(self, node: ast.ImportFrom, names: dict[str, Any]) -> None:
        for alias in node.names:
            full = f"{node.module or ''}.{alias.name}"
            if alias.name == "*":
                self.star = self.star or node.module == FUNCTIONS
                continue
            names[alias.asname or alias.name] = Module(full)
            self.found.imports[alias.asname or alias.name] = full

    def _functiondef(self, node: Any, names: dict[str, Any]) -> None:
        self.homes[id(node)] = names
        for decorator in node.decorator_list:
            self.value(decorator, names)
        names[node.name] = Function(node)

    _asyncfunctiondef = _functiondef

    def _classdef(self, node: ast.ClassDef, names: dict[str, Any]) -> None:
        self.homes[id(node)] = names
        names[node.name] = Class(node)

    def _assign(self, node: ast.Assign, names: dict[str, Any]) -> None:
        value = self.value(node.value, names)
        for target in node.targets:
            self._bind(target, value, names)

    def _annassign(self, node: ast.AnnAssign, names: dict[str, Any]) -> None:
        if node.value is not None:
            self._bind(node.target, self.value(node.value, names), names)

    def _augassign(self, node: ast.AugAssign, names: dict[str, Any]) -> None:
        self.value(node.value, names)
        self._bind(node.target, UNKNOWN, names)

    def _bind(self, target: ast.expr, value: Any, names: dict[str, Any]) -> None:
        if isinstance(target, ast.Name):
            names[target.id] = value
        elif isinstance(target, ast.Attribute):
            owner = self.value(target.value, names)
            if isinstance(owner, Instance):
                owner.attributes[target.attr] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            items = value.items if isinstance(value, Sequence) else ()
            for index, inner in enumerate(target.elts):
                known = len(items) == len(target.elts)
                self._bind(inner, items[index] if known else UNKNOWN, names)

    def _expr(self, node: ast.Expr, names: dict[str, Any]) -> None:
        value = self.value(node.value, names)
        if isinstance(value, Frame) and isinstance(node.value, ast.Call):
            self.found.dropped.append((value, node.value))

    def _return(self, node: ast.Return, names: dict[str, Any]) -> bool:
        value = UNKNOWN if node.value is None else self.value(node.value, names)
        if self.returned:
            self.returned[-1].append(value)
        return True

    def _raise(self, _node: ast.Raise, _names: dict[str, Any]) -> bool:
        return True

    def _if(self, node: ast.If, names: dict[str, Any]) -> bool:
        self.value(node.test, names)
        first, second = dict(names), dict(names)
        ended = self.block(node.body, first), self.block(node.orelse, second)
        if ended[0] or ended[1]:
            merged = second if ended[0] else first
        else:
            merged = {
                name: _either(first.get(name, second.get(name)), second.get(name, first.get(name)))
                for name in first | second
            }
        names.clear()
        names.update(merged)
        return ended[0] and ended[1]

    def _for(self, node: Any, names: dict[str, Any]) -> None:
        items = self.value(node.iter, names)
        each = items.items[-1] if isinstance(items, Sequence) and items.items else UNKNOWN
        self._bind(node.target, each, names)
        self.block(node.body, names)
        self.block(node.orelse, names)

    _asyncfor = _for

    def _while(self, node: ast.While, names: dict[str, Any]) -> None:
        self.value(node.test, names)
        self.block(node.body, names)

    def _with(self, node: Any, names: dict[str, Any]) -> bool:
        for item in node.items:
            value = self.value(item.context_expr, names)
            if item.optional_vars is not None:
                self._bind(item.optional_vars, value, names)
        return self.block(node.body, names)

    _asyncwith = _with

    def _try(self, node: Any, names: dict[str, Any]) -> bool:
        ended = self.block(node.body, names)
        for handler in node.handlers:
            self.block(handler.body, dict(names))
        ended = self.block(node.orelse, names) or ended
        return self.block(node.finalbody, names) or (ended and not node.handlers)

    _trystar = _try

    def _match(self, node: Any, names: dict[str, Any]) -> None:
        self.value(node.subject, names)
        for case in node.cases:
            branch = dict(names)
            self.block(case.body, branch)
            for name, value in branch.items():
                names[name] = _either(names.get(name, value), value)

    # Functions.

    def whatever_is_left(self) -> None:
        """Evaluate functions and methods that the file itself does not call."""
        for node in ast.walk(self.found.tree):
            if isinstance(node, ast.ClassDef):
                methods = [each for each in node.body if isinstance(each, _Def)]
                if not methods or not any(id(each) not in self.entered for each in methods):
                    continue
                one = Instance(node)
                for method in sorted(methods, key=lambda each: each.name != "__init__"):
                    if id(method) not in self.entered:
                        self._enter(method, CallArguments((one,), {}, known=False), self._home(node))
        for node in ast.walk(self.found.tree):
            if isinstance(node, _Def) and id(node) not in self.entered:
                self._enter(node, CallArguments((), {}, known=False), self._home(node))

    def _home(self, node: ast.AST) -> dict[str, Any]:
        return self.homes.get(id(node), self.globals)

    def run(self, function: Any, given: CallArguments) -> Any:
        """Evaluate a function of the file with arguments."""
        if not isinstance(function, Function):
            return UNKNOWN
        node = function.node
        if isinstance(node, ast.Lambda):
            names = dict(self._home(node)) | self._bound(node.args, given)
            return self.value(node.body, names)
        return self._enter(node, given, self._home(node))

    def _enter(self, node: Any, given: CallArguments, home: dict[str, Any]) -> Any:
        if id(node) in self.active or len(self.active) >= _DEPTH:
            return UNKNOWN
        self.entered.add(id(node))
        self.active.append(id(node))
        self.returned.append([])
        try:
            self.block(node.body, {**home, **self._bound(node.args, given)})
        finally:
            self.active.pop()
            values = self.returned.pop()
        result = values[0] if values else UNKNOWN
        for value in values[1:]:
            result = _either(result, value)
        return result

    def _bound(self, parameters: ast.arguments, given: CallArguments) -> dict[str, Any]:
        named = [*parameters.posonlyargs, *parameters.args]
        bound: dict[str, Any] = {each.arg: UNKNOWN for each in (*named, *parameters.kwonlyargs)}
        if given.known:  # the default of a function without a call is weak evidence
            defaults = zip(reversed(named), reversed(parameters.defaults), strict=False)
            for parameter, default in defaults:
                bound[parameter.arg] = self.value(default, self.globals)
            for parameter, kw_default in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True):
                if kw_default is not None:
                    bound[parameter.arg] = self.value(kw_default, self.globals)
        for parameter, value in zip(named, given.positional, strict=False):
            bound[parameter.arg] = value
        bound.update({name: value for name, value in given.named.items() if name in bound})
        return bound

    # Expressions.

    def _combined(self, node: ast.expr, names: dict[str, Any]) -> Any:
        """Combine expressions: columns if one of them is a column, text if two texts are added."""
        parts = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        values = [self.value(part, names) for part in parts]
        if any(isinstance(value, ColumnExpression) for value in values):
            return combined(node, values)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return _added(*values)
        return UNKNOWN

    def value(self, node: ast.expr, names: dict[str, Any]) -> Any:
        """Evaluate an expression."""
        self.steps += 1
        if self.steps > _MOST:
            raise _Enough
        simple = getattr(self, f"_value_{type(node).__name__.lower()}", None)
        return simple(node, names) if simple is not None else self._combined(node, names)

    def _value_constant(self, node: ast.Constant, _names: dict[str, Any]) -> Any:
        return Const(node.value)

    def _value_joinedstr(self, node: ast.JoinedStr, names: dict[str, Any]) -> Any:
        text = ""
        for part in node.values:
            value = (
                self.value(part.value, names)
                if isinstance(part, ast.FormattedValue)
                else self.value(part, names)
            )
            if not isinstance(value, Const):
                return Const(text, whole=False)
            text += str(value.value)
            if not value.whole:
                return Const(text, whole=False)
        return Const(text)

    def _value_name(self, node: ast.Name, names: dict[str, Any]) -> Any:
        if node.id in names:
            return names[node.id]
        if node.id in self.globals:
            return self.globals[node.id]
        if self.star:
            return Module(f"{FUNCTIONS}.{node.id}")
        return Module(f"builtins.{node.id}") if hasattr(builtins, node.id) else UNKNOWN

    def _value_lambda(self, node: ast.Lambda, names: dict[str, Any]) -> Any:
        self.homes[id(node)] = names
        return Function(node)

    def _value_list(self, node: Any, names: dict[str, Any]) -> Any:
        items = [self.value(item, names) for item in node.elts]
        return UNKNOWN if any(isinstance(item, ast.Starred) for item in node.elts) else Sequence(tuple(items))

    _value_tuple = _value_list

    def _value_dict(self, node: ast.Dict, names: dict[str, Any]) -> Any:
        pairs = []
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.value(item, names)
            name = UNKNOWN if key is None else self.value(key, names)
            if not isinstance(name, Const) or not isinstance(name.value, str):
                return UNKNOWN
            pairs.append((name.value, value))
        return Pairs(tuple(pairs))

    def _value_namedexpr(self, node: ast.NamedExpr, names: dict[str, Any]) -> Any:
        value = self.value(node.value, names)
        self._bind(node.target, value, names)
        return value

    def _value_ifexp(self, node: ast.IfExp, names: dict[str, Any]) -> Any:
        self.value(node.test, names)
        return _either(self.value(node.body, names), self.value(node.orelse, names))

    def _value_starred(self, node: ast.Starred, names: dict[str, Any]) -> Any:
        return self.value(node.value, names)

    def _value_subscript(self, node: ast.Subscript, names: dict[str, Any]) -> Any:
        base, key = self.value(node.value, names), self.value(node.slice, names)
        if isinstance(base, Frame):
            return _column_of(base, columns_of(key))
        if isinstance(base, ColumnExpression):
            return base.inside()
        if isinstance(base, Sequence) and isinstance(key, Const) and isinstance(key.value, int):
            return base.items[key.value] if -len(base.items) <= key.value < len(base.items) else UNKNOWN
        return UNKNOWN

    def _value_attribute(self, node: ast.Attribute, names: dict[str, Any]) -> Any:
        base, name = self.value(node.value, names), node.attr
        made: Any = UNKNOWN
        if name == "readStream":
            made = ReaderValue(streaming=True)
        elif name == "writeStream":
            frame = base if isinstance(base, Frame) else Frame(True, known=False)
            made = WriterValue(replace(frame, streaming=True), node)
            self.found.writers.append(made)
        elif isinstance(base, Instance):
            made = base.attributes.get(name, UNKNOWN)
        elif isinstance(base, Module):
            made = Builder(node) if name == "builder" else Module(f"{base.name}.{name}")
        elif isinstance(base, Frame):
            made = base if name in ("na", "stat") else _column_of(base, columns_of(Const(name)))
        elif name == "read" and isinstance(base, (SessionValue, Unknown)):
            made = ReaderValue(streaming=False)
        return made

    def _value_call(self, node: ast.Call, names: dict[str, Any]) -> Any:
        if isinstance(node.func, ast.Attribute):
            base = self.value(node.func.value, names)
            if isinstance(base, Module) and not base.name.startswith("builtins."):
                return self._of_module(f"{base.name}.{node.func.attr}", self._arguments(node, names), node)
            return self._method(base, node.func.attr, self._arguments(node, names), node)
        function = self.value(node.func, names)
        given = self._arguments(node, names)
        if isinstance(function, Function):
            return self.run(function, given)
        if isinstance(function, Class):
            return self._construct(function.node, given)
        if isinstance(function, Module):
            return self._of_module(function.name, given, node)
        return UNKNOWN

    def _arguments(self, node: ast.Call, names: dict[str, Any]) -> CallArguments:
        positional: list[Any] = []
        known = True
        for argument in node.args:
            value = self.value(argument, names)
            if isinstance(argument, ast.Starred):
                known = known and isinstance(value, Sequence)
                positional += value.items if isinstance(value, Sequence) else ()
            else:
                positional.append(value)
        named: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.value(keyword.value, names)
            if keyword.arg is not None:
                named[keyword.arg] = value
            elif isinstance(value, Pairs):
                named.update(value.items)
            else:
                known = False
        return CallArguments(tuple(positional), named, known)

    def _construct(self, node: ast.ClassDef, given: CallArguments) -> Instance:
        one = Instance(node)
        start = _method(node, "__init__")
        if start is not None:
            self._enter(
                start, CallArguments((one, *given.positional), given.named, given.known), self._home(node)
            )
        return one

    def _method(self, base: Any, name: str, given: CallArguments, node: ast.Call) -> Any:
        note_setting(self.found.settings, name, given, node)
        if isinstance(base, Unknown):
            if name in ("sql", "table") and isinstance(given.get(0, "sqlQuery"), Const):
                return self._keep_frame(self._of_views(name, given, node, UNKNOWN))
            base = Frame(None, known=False) if name in FRAME_METHODS else base
        for kind, step in self.steps_by_kind:
            if isinstance(base, kind):
                return self._keep_frame(step(base, name, given, node))
        return UNKNOWN

    def _framed(self, frame: Frame, name: str, given: CallArguments, node: ast.Call) -> Any:
        made = of_frame(frame, name, given, node, self.run)
        if name == "withWatermark" and isinstance(made, Frame):
            self.found.marks.append((made.watermarks[-1], frame))
        if name in ("createOrReplaceTempView", "createTempView", "createGlobalTempView"):
            view = given.text(0, "name")
            self.views |= {} if view is None else {view.lower(): frame}
        return made

    def _of_instance(self, one: Instance, name: str, given: CallArguments, _node: ast.Call) -> Any:
        method = _method(one.node, name)
        if method is None:
            return UNKNOWN
        return self._enter(
            method, CallArguments((one, *given.positional), given.named, given.known), self._home(one.node)
        )

    def _of_session(self, _session: SessionValue, name: str, given: CallArguments, node: ast.Call) -> Any:
        return (
            self._of_views(name, given, node, Frame(None, known=False))
            if name in ("table", "sql")
            else UNKNOWN
        )

    def _of_views(self, name: str, given: CallArguments, node: ast.Call, other: Any) -> Any:
        """Return a view of the file, or the result of a SQL query over views; otherwise an unknown value."""
        if name == "table":
            return self.views.get((given.text(0, "tableName") or "").lower(), other)
        select = select_in(given.text(0, "sqlQuery") or "")
        made = None if select is None else selected(select, self.views, node)
        if made is not None and select is not None and select.view is not None:
            self.views[select.view] = made
        return other if made is None else made

    def _keep_frame(self, made: Any) -> Any:
        if isinstance(made, Frame):
            self.found.frames.append(made)
        return made

    def _read(self, reader: ReaderValue, name: str, given: CallArguments, node: ast.Call) -> Any:
        made = of_reader(reader, name, given)
        if reader.streaming and name in ("option", "options"):
            key = given.text(0, "key")
            pairs = (
                dict(given.named)
                if name == "options"
                else {}
                if key is None
                else {key: given.get(1, "value")}
            )
            self.found.options += [(reader, key, value, node) for key, value in pairs.items()]
        return made

    def _written(self, writer: WriterValue, name: str, given: CallArguments, node: ast.Call) -> Any:
        if not writer.own:
            return of_writer(writer, name, given, node)
        if name in ("console", "memory"):
            writer.format, writer.nodes["format"] = name, node
        elif name == "foreach_batch":
            writer.function, writer.nodes["function"] = given.get(0, "fn"), node
            writer.options["ledger"] = (given.get(1, "ledger"), node)
        elif name == "start":
            place = given.named.get("checkpoint", given.get(0, "checkpoint"))
            writer.options["checkpointlocation"] = (place, node)
            writer.started = node
            return UNKNOWN
        return writer

    def _of_module(self, full: str, given: CallArguments, node: ast.Call) -> Any:
        """Evaluate the call of a function in an imported module."""
        last = full.rpartition(".")[2]
        if full.startswith("holdfast."):
            return self._of_holdfast(last, given, node)
        if full.startswith((f"{FUNCTIONS}.", "pyspark.sql.window.")):
            return of_function(last, given)
        note_setting(self.found.settings, last, given, node)
        if full.startswith("pyspark.sql.SparkSession") and last == "getActiveSession":
            return SessionValue()
        if full in _HANDING_ON and given.positional:
            return given.positional[0]
        return UNKNOWN

    def _of_holdfast(self, name: str, given: CallArguments, node: ast.Call) -> Any:
        if name in ("job", "session", "configure"):
            self.found.settings.own = True
        self.found.own_calls.append((name, given, node))
        made = of_holdfast(name, given, node)
        if isinstance(made, WriterValue):
            self.found.writers.append(made)
        return SessionValue() if name == "session" else self._keep_frame(made)


def _column_of(frame: Frame, column: ColumnExpression) -> ColumnExpression:
    """Return a column of a DataFrame, unmarked if the watermark is declared later."""
    return replace(column, unmarked=column.names - frame.time_columns) if frame.known else column


def _added(first: Any, second: Any) -> Any:
    """Concatenate the known parts of two texts."""
    if not isinstance(first, Const) or not isinstance(first.value, str):
        return UNKNOWN
    if first.whole and isinstance(second, Const) and isinstance(second.value, str):
        return Const(first.value + second.value, second.whole)
    return Const(first.value, whole=False)


def _method(node: ast.ClassDef, name: str) -> Any:
    return next((each for each in node.body if isinstance(each, _Def) and each.name == name), None)


def _either(first: Any, second: Any) -> Any:
    """Return the value of a name that has one of two values: that value if they are equal, else unknown."""
    if first is second or first == second:
        return first
    if isinstance(first, Frame) and isinstance(second, Frame):
        same = {mark.column for mark in first.watermarks} == {
            mark.column for mark in second.watermarks
        } and first.time_columns == second.time_columns
        both = first.with_other(second)
        return replace(both, known=both.known and same, streaming=first.streaming and second.streaming)
    if isinstance(first, Frame) or isinstance(second, Frame):
        frame = first if isinstance(first, Frame) else second
        return replace(frame, known=False) if isinstance(first, Frame) != isinstance(second, Frame) else frame
    return UNKNOWN
