"""What a file's statements make of its names, as far as its text tells: no line of it is run.

Statements are followed in their order, branches both ways, calls of functions and methods of the file into them.
Where two ways differ, or a name comes from elsewhere, the value is not known.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from holdfast.advice.source.frame_calls import (
    FRAME_METHODS,
    Arguments,
    columns_of,
    of_frame,
    of_grouped,
    of_holdfast,
    of_own_stream,
    of_reader,
    of_writer,
    sql,
)
from holdfast.advice.source.values import (
    UNKNOWN,
    Builder,
    Class,
    Columns,
    Const,
    Frame,
    Function,
    Grouped,
    Instance,
    Module,
    OwnStream,
    Reader,
    Sequence,
    Session,
    Settings,
    Stateful,
    Unknown,
    Watermark,
    Writer,
)

FUNCTIONS: Final = "pyspark.sql.functions"
# Stands among the functions of an expression for an operation that has few results, such as `% 8`.
BOUNDING: Final = "%"
# So deep calls of the file's own functions are followed, and so many expressions in all.
_DEPTH: Final = 12
_MOST: Final = 300_000
_PREFIX: Final = "spark."
_Def = (ast.FunctionDef, ast.AsyncFunctionDef)


class _Enough(Exception):
    """The file is larger than is followed."""


@dataclass(slots=True)
class Evaluated:
    """What was seen in a file.

    Attributes:
        tree: Its syntax tree.
        imports: The full names that its names stand for.
        settings: The settings that it makes.
        frames: Every frame that was made, in order.
        writers: Every writer.
        marks: Every watermark that was declared, each with the frame that it was declared on.
        readers: The readers of streams, each with the call that gives options.
        dropped: Frames that a statement made and nobody kept.
        own_calls: Calls of Holdfast's functions, by name.
        processors: Classes whose instances an operator was given.
    """

    tree: ast.Module
    imports: dict[str, str] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    frames: list[Frame] = field(default_factory=list)
    writers: list[Writer] = field(default_factory=list)
    marks: list[tuple[Watermark, Frame]] = field(default_factory=list)
    options: list[tuple[Reader, str, Any, ast.Call]] = field(default_factory=list)
    dropped: list[tuple[Frame, ast.Call]] = field(default_factory=list)
    own_calls: list[tuple[str, Arguments, ast.Call]] = field(default_factory=list)
    functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = field(default_factory=dict)

    def operators(self) -> list[Stateful]:
        """The stateful operators of streams, each call with every history that it has."""
        streams = [frame for frame in self.frames if frame.streaming]
        streams += [writer.frame for writer in self.writers]
        seen: dict[Any, Stateful] = {}
        for frame in streams:
            for operator in frame.operators:
                seen.setdefault((id(operator.node), operator.watermarks, operator.other, operator.known), operator)
        return list(seen.values())


def evaluate(tree: ast.Module) -> Evaluated:
    """Follow the statements of a file."""
    run = _Run(Evaluated(tree))
    try:
        run.block(tree.body, run.globals)
        run.whatever_is_left()
    except (_Enough, RecursionError):
        run.found.settings.known = False  # what was not followed may make some
    return run.found


class _Run:
    """One pass over a file."""

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
        for node in ast.walk(found.tree):
            if isinstance(node, _Def):
                found.functions[node.name] = node
            if isinstance(node, ast.Dict):
                self._note_dict(node)

    # Statements.

    def block(self, body: Iterable[ast.stmt], names: dict[str, Any]) -> bool:
        """Follow statements; whether they end the block that they are in."""
        return any(self.statement(node, names) for node in body)

    def statement(self, node: ast.stmt, names: dict[str, Any]) -> bool:
        """Follow one; whether nothing behind it runs."""
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
            for name in branch:
                names[name] = _either(names.get(name, branch[name]), branch[name])

    # Functions.

    def whatever_is_left(self) -> None:
        """Follow functions and methods that the file itself does not call."""
        for node in ast.walk(self.found.tree):
            if isinstance(node, ast.ClassDef):
                methods = [each for each in node.body if isinstance(each, _Def)]
                if not methods or not any(id(each) not in self.entered for each in methods):
                    continue
                one = Instance(node)
                for method in sorted(methods, key=lambda each: each.name != "__init__"):
                    if id(method) not in self.entered:
                        self._enter(method, Arguments((one,), {}, known=False), self._home(node))
        for node in ast.walk(self.found.tree):
            if isinstance(node, _Def) and id(node) not in self.entered:
                self._enter(node, Arguments((), {}, known=False), self._home(node))

    def _home(self, node: ast.AST) -> dict[str, Any]:
        return self.homes.get(id(node), self.globals)

    def run(self, function: Any, given: Arguments) -> Any:
        """What a function of the file gives for arguments."""
        if not isinstance(function, Function):
            return UNKNOWN
        node = function.node
        if isinstance(node, ast.Lambda):
            names = dict(self._home(node)) | self._bound(node.args, given)
            return self.value(node.body, names)
        return self._enter(node, given, self._home(node))

    def _enter(self, node: Any, given: Arguments, home: dict[str, Any]) -> Any:
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

    def _bound(self, parameters: ast.arguments, given: Arguments) -> dict[str, Any]:
        named = [*parameters.posonlyargs, *parameters.args]
        bound: dict[str, Any] = {each.arg: UNKNOWN for each in (*named, *parameters.kwonlyargs)}
        if given.known:  # a default of a function that nobody calls here says little
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

    def value(self, node: ast.expr, names: dict[str, Any]) -> Any:
        """What an expression stands for."""
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
            value = self.value(part.value, names) if isinstance(part, ast.FormattedValue) else self.value(part, names)
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
        return Function(node)  # type: ignore[arg-type]

    def _value_list(self, node: Any, names: dict[str, Any]) -> Any:
        items = [self.value(item, names) for item in node.elts]
        return UNKNOWN if any(isinstance(item, ast.Starred) for item in node.elts) else Sequence(tuple(items))

    _value_tuple = _value_list

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
            return columns_of(key)
        if isinstance(base, Columns):
            return base.inside()
        if isinstance(base, Sequence) and isinstance(key, Const) and isinstance(key.value, int):
            return base.items[key.value] if -len(base.items) <= key.value < len(base.items) else UNKNOWN
        return UNKNOWN

    def _value_attribute(self, node: ast.Attribute, names: dict[str, Any]) -> Any:
        base, name = self.value(node.value, names), node.attr
        if name == "readStream":
            return Reader(streaming=True)
        if name == "writeStream":
            frame = base if isinstance(base, Frame) else Frame(True, known=False)
            writer = Writer(replace(frame, streaming=True), node)
            self.found.writers.append(writer)
            return writer
        if isinstance(base, Instance):
            return base.attributes.get(name, UNKNOWN)
        if isinstance(base, Module):
            if name == "builder":
                return Builder(node)
            return Module(f"{base.name}.{name}")
        if isinstance(base, Frame):
            return columns_of(Const(name))
        if name == "read" and isinstance(base, (Session, Unknown)):
            return Reader(streaming=False)
        return UNKNOWN

    def _value_call(self, node: ast.Call, names: dict[str, Any]) -> Any:
        if isinstance(node.func, ast.Attribute):
            base = self.value(node.func.value, names)
            if isinstance(base, Module) and not base.name.startswith("builtins."):
                return self._of_module(f"{base.name}.{node.func.attr}", self._arguments(node, names), node, names)
            return self._method(base, node.func.attr, self._arguments(node, names), node)
        function = self.value(node.func, names)
        given = self._arguments(node, names)
        if isinstance(function, Function):
            return self.run(function, given)
        if isinstance(function, Class):
            return self._made(function.node, given)
        if isinstance(function, Module):
            return self._of_module(function.name, given, node, names)
        return UNKNOWN

    def _arguments(self, node: ast.Call, names: dict[str, Any]) -> Arguments:
        positional: list[Any] = []
        known = True
        for argument in node.args:
            value = self.value(argument, names)
            if isinstance(argument, ast.Starred):
                known = known and isinstance(value, Sequence)
                positional += value.items if isinstance(value, Sequence) else ()
            else:
                positional.append(value)
        named = {each.arg: self.value(each.value, names) for each in node.keywords if each.arg is not None}
        return Arguments(tuple(positional), named, known and all(each.arg is not None for each in node.keywords))

    def _made(self, node: ast.ClassDef, given: Arguments) -> Instance:
        one = Instance(node)
        start = _method(node, "__init__")
        if start is not None:
            self._enter(start, Arguments((one, *given.positional), given.named, given.known), self._home(node))
        return one

    def _method(self, base: Any, name: str, given: Arguments, node: ast.Call) -> Any:
        """What a call of a method gives."""
        self._note_setting(name, given, node)
        if isinstance(base, Unknown) and name in FRAME_METHODS:
            base = Frame(None, known=False)
        made: Any = UNKNOWN
        if isinstance(base, Frame):
            made = of_frame(base, name, given, node, self.run)
            if name == "withWatermark" and isinstance(made, Frame):
                self.found.marks.append((made.watermarks[-1], base))
            if name in ("createOrReplaceTempView", "createTempView", "createGlobalTempView"):
                view = given.text(0, "name")
                self.views |= {} if view is None else {view: base}
        elif isinstance(base, Grouped):
            made = of_grouped(base, name, given, node)
        elif isinstance(base, OwnStream):
            made = of_own_stream(base, name, given, node)
        elif isinstance(base, Reader):
            made = self._read(base, name, given, node)
        elif isinstance(base, Writer):
            made = self._written(base, name, given, node)
        elif isinstance(base, Columns):
            made = _of_columns(base, name, given)
        elif isinstance(base, Builder):
            made = self._built(base, name, given, node)
        elif isinstance(base, Instance):
            method = _method(base.node, name)
            if method is not None:
                bound = Arguments((base, *given.positional), given.named, given.known)
                made = self._enter(method, bound, self._home(base.node))
        elif isinstance(base, Session) and name in ("table", "sql"):
            made = self.views.get(given.text(0, "tableName") or "", Frame(None, known=False))
        elif isinstance(base, Unknown) and name in ("option", "options", "format"):
            made = UNKNOWN
        return self._kept(made)

    def _kept(self, made: Any) -> Any:
        if isinstance(made, Frame):
            self.found.frames.append(made)
        return made

    def _read(self, reader: Reader, name: str, given: Arguments, node: ast.Call) -> Any:
        made = of_reader(reader, name, given)
        if reader.streaming and name in ("option", "options"):
            key = given.text(0, "key")
            pairs = dict(given.named) if name == "options" else {} if key is None else {key: given.get(1, "value")}
            self.found.options += [(reader, key, value, node) for key, value in pairs.items()]
        return made

    def _written(self, writer: Writer, name: str, given: Arguments, node: ast.Call) -> Any:
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

    def _built(self, builder: Builder, name: str, given: Arguments, node: ast.Call) -> Any:
        settings = self.found.settings
        if name == "master":
            settings.master = given.text(0, "master") or settings.master
        elif name == "config" and not (given.positional and isinstance(given.positional[0], Const)):
            made = given.named.get("map")
            settings.known = settings.known and isinstance(made, Sequence)
        elif name in ("getOrCreate", "create"):
            settings.built = settings.built or node
            return Session()
        return builder

    def _of_module(self, full: str, given: Arguments, node: ast.Call, names: dict[str, Any]) -> Any:
        """What a call of a function of another module gives."""
        last = full.rpartition(".")[2]
        if full.startswith("holdfast."):
            if last in ("job", "session", "configure"):
                self.found.settings.own = True
            self.found.own_calls.append((last, given, node))
            made = of_holdfast(last, given, node)
            if isinstance(made, Writer):
                self.found.writers.append(made)
            return Session() if last == "session" else self._kept(made)
        if full.startswith("pyspark.sql.SparkSession") and last == "getActiveSession":
            return Session()
        if last == "builder":
            return Builder(node)
        if full.startswith((f"{FUNCTIONS}.", "pyspark.sql.window.")):
            return self._column(last, given)
        self._note_setting(last, given, node)
        if full.startswith("builtins."):
            return given.positional[0] if last in ("list", "tuple", "sorted") and given.positional else UNKNOWN
        del names
        return UNKNOWN

    def _column(self, name: str, given: Arguments) -> Columns:
        """What a function over columns gives."""
        if name in ("col", "column"):
            return columns_of(given.get(0, "col"))
        if name == "expr":
            text = given.text(0, "str")
            return Columns(known=False) if text is None else sql(text)
        if name == "lit":
            return Columns(known=True)
        return replace(
            given.columns().inside(), calls=given.columns().calls | {name}, aliases=(), known=True
        )

    def _combined(self, node: ast.expr, names: dict[str, Any]) -> Any:
        """An expression out of others: columns where one of them is."""
        values = [self.value(child, names) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        if not any(isinstance(value, Columns) for value in values):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
                first = values[0]
                if isinstance(first, Const) and isinstance(first.value, str):
                    second = values[1]
                    if isinstance(second, Const) and isinstance(second.value, str) and first.whole:
                        return Const(first.value + second.value, second.whole)
                    return Const(first.value, whole=False)
            return UNKNOWN
        found = Columns()
        for value in values:
            found = found.merged(value if isinstance(value, Columns) else Columns())
        compares = isinstance(node, ast.Compare) and any(
            isinstance(operator, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) for operator in node.ops
        )
        bounding = isinstance(node, ast.Compare) or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod))
        calls = found.calls | ({BOUNDING} if bounding else frozenset())
        return replace(found.inside(), compares=found.compares or compares, calls=calls)

    # Settings.

    def _note_setting(self, name: str, given: Arguments, node: ast.Call) -> None:
        if name not in ("set", "config", "setIfMissing", "configure"):
            return
        key = given.get(0, "key")
        if isinstance(key, Const) and isinstance(key.value, str) and key.value.startswith(_PREFIX):
            self.found.settings.made[key.value] = (given.get(1, "value"), node)
            if key.value == "spark.master":
                self.found.settings.master = given.text(1, "value")
        elif isinstance(key, Unknown) and len(given.positional) == 2 and name != "configure":
            self.found.settings.known = False

    def _note_dict(self, node: ast.Dict) -> None:
        """Settings in a dict: whoever writes them down means to make them."""
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str) and key.value.startswith(_PREFIX):
                made = Const(value.value) if isinstance(value, ast.Constant) else UNKNOWN
                self.found.settings.made[key.value] = (made, key)


def _method(node: ast.ClassDef, name: str) -> Any:
    return next((each for each in node.body if isinstance(each, _Def) and each.name == name), None)


def _of_columns(base: Columns, name: str, given: Arguments) -> Columns:
    if name in ("alias", "name"):
        alias = given.text(0, "alias")
        return base if alias is None else replace(base, aliases=((alias.lower(), base),))
    if name in ("asc", "desc"):
        return base
    merged = base.merged(given.columns()).inside()
    return replace(merged, compares=merged.compares or name == "between", calls=merged.calls | {name})


def _either(first: Any, second: Any) -> Any:
    """A value that is one of two."""
    if first is second or first == second:
        return first
    if isinstance(first, Frame) and isinstance(second, Frame):
        same = (
            {mark.column for mark in first.watermarks} == {mark.column for mark in second.watermarks}
            and first.time_columns == second.time_columns
        )
        both = first.with_other(second)
        return replace(both, known=both.known and same, streaming=first.streaming and second.streaming)
    if isinstance(first, Frame) or isinstance(second, Frame):
        frame = first if isinstance(first, Frame) else second
        return replace(frame, known=False) if isinstance(first, Frame) != isinstance(second, Frame) else frame
    return UNKNOWN


Check = Callable[[Evaluated], Iterable[Any]]
