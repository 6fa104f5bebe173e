"""The definition of a processor, read from its class and checked before the query starts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

from holdfast.errors import Invalid
from holdfast.worker.declarations.declaration import accepts, has_binary, states_of
from holdfast.worker.declarations.state_descriptors import (
    BOTH,
    KEYED,
    SETTLED_STATE,
    TABLE,
    Keyed,
    KeyedTable,
    Operator,
    State,
    StateKind,
)
from holdfast.worker.declarations.types import schema_of

# The suffixes of `on_…` methods that are not stream names.
_NOT_STREAMS: Final = (
    "batch", "broadcast", "end", "event", "key", "restore", "start", "timer", "timers"
)  # fmt: skip
_INHERITED: Final = [
    getattr(base, name)
    for base in (Keyed, Operator, KeyedTable)
    for name in (*KEYED, *TABLE, *BOTH)
    if hasattr(base, name)
]
_EVENT: Final = ("event", "state", "ctx")
ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "on_event": _EVENT,
    "on_key": ("key", "events", "state", "ctx"),
    "on_timer": ("timer", "state", "ctx"),
    "on_start": ("ctx",),
    "on_batch": ("events", "state"),
    "on_timers": ("timers", "state"),
    "combine": ("events",),
    "on_broadcast": ("row", "rows", "ctx"),
    "on_end": ("state", "ctx"),
    "merge": ("state", "part"),
    "on_restore": ("state", "ctx"),
}


def handlers_of(processor: object) -> dict[str, Callable[..., Any]]:
    """Return the handlers that a processor defines, by name: its `on_…` methods, `combine` and `merge`."""
    own = type(processor)
    names = [name for name in dir(own) if name.startswith("on_") or name in ("combine", "merge")]
    defined = [name for name in names if getattr(own, name) not in _INHERITED]
    return {name: getattr(processor, name) for name in defined if callable(getattr(processor, name))}


def stream_names(processor: object) -> tuple[str, ...]:
    """Return the names of the streams that have a handler, in the order of definition."""
    order: dict[str, None] = {}
    for base in reversed(type(processor).__mro__):
        order.update(dict.fromkeys(vars(base)))
    named = handlers_of(processor)
    return tuple(name[3:] for name in order if name in named and _is_stream(name))


def event_handlers(processor: object, streams: Sequence[str], *, table: bool) -> tuple[str, ...]:
    """Return the name of the handler of each stream, in the order of the streams.

    Raises:
        Invalid: A stream has no handler or two, or a handler has no stream or the wrong arguments.
    """
    where = type(processor).__qualname__
    _check_streams(streams, where)
    present = handlers_of(processor)
    _check_family(present, where, table=table)
    named = [name for name in present if _is_stream(name)]
    if len(streams) > 1:
        chosen = _connected(present, named, streams, where)
        arguments = ARGUMENTS["on_batch"] if table else _EVENT
    else:
        chosen = _single(present, named, where, table=table)
        arguments = ARGUMENTS[chosen[0]]
    for name in chosen:
        _check_call(present[name], name, arguments, where, generator=not table)
    for name in ((TABLE if table else KEYED) + BOTH)[1:]:
        if name in present and name not in chosen:
            generator = name in ("on_timer", "on_end")
            _check_call(present[name], name, ARGUMENTS[name], where, generator=generator)
    if "merge" in present:
        _check_merge(present, chosen, where)
    return chosen


def _check_merge(present: Mapping[str, Callable[..., Any]], chosen: Sequence[str], where: str) -> None:
    """Raise an error for a processor whose output would depend on whether its keys are split."""
    if tuple(chosen) != ("on_event",):
        raise Invalid(
            "merge requires on_event on a single stream",
            code="HF-E2432",
            where=f"{where}.merge",
            found=", ".join(chosen),
            expected="on_event",
            hint="process a single stream with on_event, or remove merge",
        )
    if inspect.isgeneratorfunction(present["on_event"]):
        raise no_rows("on_event", "a generator", f"{where}.on_event")


def no_rows(handler: str, found: str, where: str | None = None) -> Invalid:
    """Return the error for output rows that would depend on how the events of a hot key were split."""
    return Invalid(
        f"{handler} of a processor with merge cannot return rows",
        code="HF-E2433",
        where=where,
        found=found,
        hint="return rows from on_end, which runs once per batch for each key with events",
    )


def _is_stream(name: str) -> bool:
    return name.startswith("on_") and name[3:] not in _NOT_STREAMS


def _check_streams(streams: Sequence[str], where: str) -> None:
    if not streams:
        raise Invalid(
            "the processor has no stream",
            code="HF-E2434",
            where=where,
            hint="pass a stream of events, as in hf.keyed(df, by=…)",
        )
    for name in streams:
        if len(streams) > 1 and name in _NOT_STREAMS:
            raise Invalid(
                "the name of a connected stream is reserved",
                code="HF-E2435",
                where=where,
                found=f'"{name}"',
                expected="a name other than " + ", ".join(_NOT_STREAMS),
                hint=f'rename the stream: name="{name}_rows"',
            )
        if len(streams) > 1 and not name.isidentifier():
            raise Invalid(
                "the name of a connected stream cannot be part of a method name",
                code="HF-E2436",
                where=where,
                found=repr(name),
                expected="letters, digits and underscores, not starting with a digit",
                hint='rename the stream, as in name="orders"',
            )
        if list(streams).count(name) > 1:
            raise Invalid(
                "two streams have the same name",
                code="HF-E2437",
                where=where,
                found=f'"{name}" twice',
                hint="rename one of the streams with name=…",
            )


def _check_family(present: Mapping[str, object], where: str, *, table: bool) -> None:
    """Raise an error for a handler of the other base class, which would never be called."""
    strange = KEYED if table else TABLE
    for name in strange:
        if name in present:
            base, other = ("hf.KeyedTable", "hf.Keyed") if table else ("hf.Keyed", "hf.KeyedTable")
            raise Invalid(
                f"{name} is never called on a {base}",
                code="HF-E2438",
                where=f"{where}.{name}",
                hint=f"inherit from {other}, or rename the method",
            )


def _connected(
    present: Mapping[str, object], named: Sequence[str], streams: Sequence[str], where: str
) -> tuple[str, ...]:
    wanted = tuple(f"on_{stream}" for stream in streams)
    for name in ("on_event", "on_key", "on_batch", "combine"):
        if name in present:
            raise Invalid(
                f"{name} cannot be used with connected streams, which need a handler each",
                code="HF-E2439",
                where=f"{where}.{name}",
                expected=", ".join(wanted),
                hint=f"rename {name} to {wanted[0]} and define the others"
                if name in ("on_event", "on_batch")
                else f"remove {name} and define {', '.join(wanted)}",
            )
    missing = [name for name in wanted if name not in present]
    superfluous = [name for name in named if name not in wanted]
    if missing or superfluous:
        raise Invalid(
            "the handlers of the processor do not match the streams",
            code="HF-E2440",
            where=where,
            found=", ".join(named) or "no handler",
            expected=", ".join(wanted),
            hint=" and ".join(
                [f"add {', '.join(missing)}"] * bool(missing)
                + [f"connect a stream for {', '.join(superfluous)}, or rename it"] * bool(superfluous)
            ),
        )
    return wanted


def _single(
    present: Mapping[str, object], named: Sequence[str], where: str, *, table: bool
) -> tuple[str, ...]:
    allowed = ("on_batch",) if table else ("on_event", "on_key")
    chosen = tuple(name for name in allowed if name in present)
    if len(chosen) > 1:
        raise Invalid(
            "on_event and on_key cannot be combined",
            code="HF-E2441",
            where=where,
            hint="move the code of on_event into on_key, which receives all events of a key at once",
        )
    if not chosen:
        hint = (
            f"rename {named[0]} to {allowed[0]}, or connect a second stream"
            if named
            else f"define {allowed[0]}"
        )
        raise Invalid(
            "the processor has no handler for events",
            code="HF-E2442",
            where=where,
            found=", ".join(named) or "none",
            expected=" or ".join(_shape(name, ARGUMENTS[name]) for name in allowed),
            hint=hint,
        )
    if named:
        raise Invalid(
            "no stream is connected for this handler",
            code="HF-E2443",
            where=f"{where}.{named[0]}",
            found=f"one stream, which {chosen[0]} handles",
            expected=f"{chosen[0]} as the only handler of events",
            hint="rename the method so that it does not start with on_; or connect a stream with"
            f' name="{named[0][3:]}", give the first stream a name=…, and rename {chosen[0]} to on_NAME',
        )
    return chosen


def _check_call(
    method: Callable[..., Any], name: str, arguments: Sequence[str], where: str, *, generator: bool
) -> None:
    if not accepts(method, len(arguments)):
        raise Invalid(
            "the handler has the wrong arguments",
            code="HF-E2444",
            where=f"{where}.{name}",
            found=f"{name}{_signature(method)}",
            expected=_shape(name, arguments),
            hint=f"write def {_shape(name, arguments)}",
        )
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        raise Invalid(
            "a handler cannot be async",
            code="HF-E2445",
            where=f"{where}.{name}",
            hint="define the handler with def instead of async def",
        )
    if not generator and inspect.isgeneratorfunction(method):
        raise Invalid(
            f"{name} cannot be a generator",
            code="HF-E2446",
            where=f"{where}.{name}",
            hint="remove yield: a generator would never run here"
            if name in ("on_start", "on_broadcast", "merge", "on_restore")
            else "return one pyarrow.Table, or None",
        )


def _signature(method: Callable[..., Any]) -> str:
    names = list(inspect.signature(method).parameters)
    return f"({', '.join(['self', *names])})"


def _shape(name: str, arguments: Sequence[str]) -> str:
    return f"{name}({', '.join(['self', *arguments])})"


def names_any(handlers: Iterable[Callable[..., Any]], owner: type, words: frozenset[str]) -> bool:
    """Return whether one of these words occurs as a name or a complete string in the code of the handlers.

    The search includes what the handlers call by name: methods of the class and its bases, functions, and
    functions wrapped by a decorator; of functions in other packages it reads only their own code. It misses
    functions that are reached in other ways, for example through an attribute of the instance. For a handler
    not written in Python the result is True.

    Args:
        handlers: Methods of a processor.
        owner: The class of the processor.
        words: The words to search for.
    """
    waiting: list[Any] = [getattr(handler, "__func__", handler) for handler in handlers]
    if not all(isinstance(function, FunctionType) for function in waiting):
        return True
    homes = {_package(base) for base in owner.__mro__}
    seen: set[FunctionType] = set()
    while waiting:
        function = waiting.pop()
        if function in seen:
            continue
        seen.add(function)
        named = frozenset(_names_in_code(function.__code__))
        if named & words:
            return True
        if _package(function) in homes:
            waiting += _called(function, named, owner)
    return False


def _package(thing: Any) -> str:
    return str(thing.__module__).partition(".")[0]


def _names_in_code(code: CodeType) -> Iterator[str]:
    """Yield the names and string constants in a code object and in the functions nested in it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, CodeType):
            yield from _names_in_code(constant)


def _called(function: FunctionType, named: Iterable[str], owner: type) -> Iterator[FunctionType]:
    """Yield the functions that these names refer to, as far as they can be resolved."""
    around = [function.__globals__.get(name) for name in named]
    modules = [thing for thing in around if isinstance(thing, ModuleType)]
    members = [vars(base).get(name) for base in owner.__mro__ for name in named]
    reachable = [
        *map(_content, function.__closure__ or ()),
        *around,
        *(vars(module).get(name) for module in modules for name in named),
        *(
            member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            for member in members
        ),
    ]
    yield from (thing for thing in reachable if isinstance(thing, FunctionType))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the name is not bound yet
        return None


__all__ = ["Keyed", "KeyedTable", "ProcessorDefinition", "definition_of"]

_PICKLERS = frozenset({"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal"})


@dataclass(frozen=True, slots=True)
class ProcessorDefinition:
    """The handlers, states and capabilities of a processor, read from its class.

    Attributes:
        name: The name of the class.
        kind: The unit in which events are handled: "event", "key" or "table".
        streams: The names of the streams, in the order in which they are connected.
        handlers: The name of the handler of each stream.
        states: The declared states in the order of their declaration, those of base classes first.
        has_timers: Whether the processor has a handler for timers.
        combines: Whether the processor merges events before the shuffle.
        merges: Whether the processor can merge the states of two parts of a key's events.
        ends: Whether the processor has a handler that runs after a key's last event in a batch.
    """

    name: str
    kind: str
    streams: tuple[str, ...]
    handlers: tuple[str, ...]
    states: tuple[State, ...]
    has_timers: bool
    combines: bool
    merges: bool = False
    ends: bool = False

    @property
    def has_event_ttl(self) -> bool:
        """Return whether any state has a TTL in event time."""
        return any(state.ttl is not None and state.ttl.clock == "event" for state in self.states)


def definition_of(
    processor: object, streams: Sequence[str], broadcast: str | None = None
) -> ProcessorDefinition:
    """Read and check the definition of a processor.

    The class is inspected and the instance is pickled once; no handler is called.

    Args:
        processor: An instance of a subclass of `Keyed` or `KeyedTable`.
        streams: The names of the streams, in the order in which they are connected.
        broadcast: The name of the broadcast stream, or None.

    Raises:
        Invalid: A handler, state or attribute of the processor is invalid, or it cannot be pickled.
    """
    _check_is_processor(processor)
    table = isinstance(processor, KeyedTable)
    name = type(processor).__qualname__
    for attribute, value in _attributes(processor).items():
        if isinstance(value, State):
            raise Invalid(
                "a state is declared on the instance instead of the class",
                code="HF-E2447",
                where=f"{name}.{attribute}",
                hint="declare the state in the class body, next to the methods",
            )
    handlers = event_handlers(processor, streams, table=table)
    states = states_of(type(processor))
    _check_instances(processor, states)
    if isinstance(processor, Operator):
        states = (*states, SETTLED_STATE)
    _check_no_pickling(processor, states)
    _check_is_picklable(processor)
    present = handlers_of(processor)
    _check_broadcast(name, states, broadcast, "on_broadcast" in present)
    if isinstance(processor, KeyedTable):
        _check_combined(processor, "combine" in present)
    kind = "table" if table else "key" if handlers == ("on_key",) else "event"
    timers = "on_timers" if table else "on_timer"
    return ProcessorDefinition(
        type(processor).__name__,
        kind,
        tuple(streams),
        handlers,
        states,
        has_timers=timers in present,
        combines="combine" in present,
        merges="merge" in present,
        ends="on_end" in present,
    )


def _check_is_processor(processor: object) -> None:
    if isinstance(processor, type):
        raise Invalid(
            "the processor is a class, not an instance",
            code="HF-E2448",
            found=processor.__name__,
            hint=f"write {processor.__name__}()",
        )
    if not isinstance(processor, (Keyed, KeyedTable)) or isinstance(processor, Keyed) is isinstance(
        processor, KeyedTable
    ):
        raise Invalid(
            "the object is not a valid processor",
            code="HF-E2449",
            found=type(processor).__name__,
            expected="an instance of a subclass of hf.Keyed or hf.KeyedTable",
            hint="define class Visits(hf.Keyed) and pass Visits()",
        )


def _check_instances(processor: object, states: Sequence[State]) -> None:
    """Raise an error for states that cannot be redistributed among instances, and for union lists outside an
    hf.Operator.
    """
    operator = isinstance(processor, Operator)
    for state in states:
        where = f"{type(processor).__qualname__}.{state.name}"
        if state.union and not operator:
            raise Invalid(
                "hf.union_list requires an hf.Operator",
                code="HF-E2450",
                where=where,
                hint="inherit from hf.Operator, or declare hf.list",
            )
        if operator and (state.kind is not StateKind.LIST or state.ttl is not None):
            raise Invalid(
                "state of an hf.Operator must be a list without a TTL",
                code="HF-E2451",
                where=where,
                found=state.kind.value + (" with a TTL" if state.ttl is not None else ""),
                expected="hf.list(…) or hf.union_list(…)",
                hint="declare hf.list(…), and keep state of keys in an hf.Keyed",
            )
    if not operator and "on_restore" in handlers_of(processor):
        raise Invalid(
            "on_restore is called only on an hf.Operator",
            code="HF-E2452",
            where=f"{type(processor).__qualname__}.on_restore",
            hint="inherit from hf.Operator, or rename the method",
        )


def _check_broadcast(name: str, states: Sequence[State], broadcast: str | None, handled: bool) -> None:
    if broadcast is None and handled:
        raise Invalid(
            "on_broadcast is never called: the operator has no broadcast stream",
            code="HF-E2453",
            where=f"{name}.on_broadcast",
            hint="add a broadcast stream: hf.keyed(…).with_broadcast(hf.broadcast(rules, key=…))",
        )
    if any(state.name == broadcast for state in states):
        raise Invalid(
            "a state and the broadcast stream have the same name",
            code="HF-E2454",
            where=f"{name}.{broadcast}",
            hint='rename the state, or the stream: hf.broadcast(…, name="rules")',
        )


def _check_combined(processor: KeyedTable, combines: bool) -> None:
    where = f"{type(processor).__qualname__}.combined"
    if processor.combined is None:
        return
    if not combines:
        raise Invalid(
            "`combined` is set, but combine is not defined",
            code="HF-E2455",
            where=where,
            hint="define combine(self, events), or remove `combined`",
        )
    schema_of(processor.combined)


def _check_no_pickling(processor: object, states: Sequence[State]) -> None:
    """Raise an error for handlers that pickle values into binary state, because its evolution cannot be
    checked.
    """
    binary = next((state for state in states if has_binary(state.type)), None)
    if binary is None:
        return
    for base in type(processor).__mro__:
        for name, method in vars(base).items():
            code = getattr(method, "__code__", None)
            if code is None:
                continue
            uses = [word for word in code.co_names if _is_pickler(word, method.__globals__)]
            if uses:
                raise Invalid(
                    "a processor with a binary state cannot use pickle, because later versions could not"
                    " check the stored objects",
                    code="HF-E2456",
                    where=f"{type(processor).__qualname__}.{name}",
                    found=f"`{uses[0]}` in this method, and binary state {binary.name}",
                    hint='declare the state as "struct<…>" instead of binary; if pickle only decodes events,'
                    " move that code to a function outside the class",
                )


def _is_pickler(name: str, names: dict[str, Any]) -> bool:
    meant = names.get(name)
    home = getattr(meant, "__name__", None) if meant is not None else name
    origin = getattr(meant, "__module__", None) or ""
    return home in _PICKLERS or origin.lstrip("_").split(".")[0] in _PICKLERS


def _check_is_picklable(processor: object) -> None:
    try:
        from pyspark import cloudpickle
    except ImportError:
        return  # a test without Spark, which sends the processor nowhere
    error = _failure(cloudpickle, processor)
    if error is None:
        return
    where = type(processor).__qualname__
    for attribute, value in _attributes(processor).items():
        inner = _failure(cloudpickle, value)
        if inner is not None:
            raise Invalid(
                "an attribute of the processor cannot be pickled for Spark's workers",
                code="HF-E2457",
                where=f"{where}.{attribute}",
                found=f"{type(value).__name__}: {inner}",
                hint="create this attribute in on_start, which runs in the worker",
            )
    raise Invalid(
        "the processor cannot be pickled for Spark's workers",
        code="HF-E2458",
        where=where,
        found=error,
        hint="create clients, locks and other objects that cannot be pickled in on_start, as attributes of"
        " self, and do not use them as global or enclosing variables",
    )


def _failure(pickler: Any, value: object) -> str | None:
    try:
        pickler.dumps(value)
    except Exception as error:  # pickling a user's object can raise any exception
        return f"{type(error).__name__}: {error}"
    return None


def _attributes(processor: object) -> dict[str, Any]:
    slots = [name for base in type(processor).__mro__ for name in getattr(base, "__slots__", ())]
    in_slots = {name: getattr(processor, name) for name in slots if hasattr(processor, name)}
    return {**in_slots, **getattr(processor, "__dict__", {})}
