"""What a processor is, read from its class and checked before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.errors import Invalid
from holdfast.worker.declarations.base_classes import Keyed, KeyedTable, Operator
from holdfast.worker.declarations.declaration import has_binary, states_of
from holdfast.worker.declarations.handlers import event_handlers, handlers_of
from holdfast.worker.declarations.state_descriptors import SETTLED_STATE, Kind, State
from holdfast.worker.declarations.types import schema_of

__all__ = ["Definition", "Keyed", "KeyedTable", "definition_of"]

_PICKLERS = frozenset({"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal"})


@dataclass(frozen=True, slots=True)
class Definition:
    """What a processor is, as far as its class tells.

    Attributes:
        name: The name of the class.
        kind: How it takes events: "event", "key" or "table".
        streams: The names of its streams, in the order in which they are connected.
        handlers: For each stream the method that takes its events.
        states: The states in the order of their declaration, those of base classes first.
        has_timers: Whether it has a handler for timers.
        combines: Whether events are merged before the shuffle.
        merges: Whether the states of two parts of a key's events can be merged.
        ends: Whether it has a handler for the end of a key's events in a batch.
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
        """Whether any value's life goes by event time."""
        return any(state.ttl is not None and state.ttl.clock == "event" for state in self.states)


def definition_of(processor: object, streams: Sequence[str], broadcast: str | None = None) -> Definition:
    """Read what a processor is, and refuse what could only fail later.

    Looks at the class and pickles the instance once; calls no handler.

    Args:
        processor: An instance of a subclass of `Keyed` or `KeyedTable`.
        streams: The names of the streams, in the order in which they are connected.
        broadcast: The name of the broadcast stream, where there is one.

    Raises:
        Invalid: Something about the class or the instance is wrong; the message says what and where.
    """
    _check_is_processor(processor)
    table = isinstance(processor, KeyedTable)
    name = type(processor).__qualname__
    for attribute, value in _attributes(processor).items():
        if isinstance(value, State):
            raise Invalid(
                "a state is declared on the instance, where no two tasks would agree on it",
                where=f"{name}.{attribute}",
                hint="declare it in the body of the class, beside the methods",
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
    return Definition(
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
            "a processor is an instance, and this is a class",
            found=processor.__name__,
            hint=f"write {processor.__name__}()",
        )
    if not isinstance(processor, (Keyed, KeyedTable)) or isinstance(processor, Keyed) is isinstance(
        processor, KeyedTable
    ):
        raise Invalid(
            "this is not a processor",
            found=type(processor).__name__,
            expected="an instance of a class that inherits from hf.Keyed or from hf.KeyedTable",
            hint="write class Visits(hf.Keyed), and hand over Visits()",
        )


def _check_instances(processor: object, states: Sequence[State]) -> None:
    """Refuse states that could not be handed out to other instances, and lists that are of none."""
    operator = isinstance(processor, Operator)
    for state in states:
        where = f"{type(processor).__qualname__}.{state.name}"
        if state.union and not operator:
            raise Invalid(
                "a union list is of an operator's instance",
                where=where,
                hint="inherit from hf.Operator, or declare hf.list",
            )
        if operator and (state.kind is not Kind.LIST or state.ttl is not None):
            raise Invalid(
                "the state of an instance is a list without TTL: nothing else can be handed out to others",
                where=where,
                found=state.kind.value + (" with a TTL" if state.ttl is not None else ""),
                expected="hf.list(…) or hf.union_list(…)",
                hint="declare hf.list(…), and keep values of keys in an hf.Keyed",
            )
    if not operator and hasattr(processor, "on_restore"):
        raise Invalid(
            "on_restore is called for the instances of an hf.Operator alone",
            where=f"{type(processor).__qualname__}.on_restore",
            hint="inherit from hf.Operator, or rename the method",
        )


def _check_broadcast(name: str, states: Sequence[State], broadcast: str | None, handled: bool) -> None:
    if broadcast is None and handled:
        raise Invalid(
            "on_broadcast is never called: the operator has no broadcast stream",
            where=f"{name}.on_broadcast",
            hint="add one: hf.keyed(…).with_broadcast(hf.broadcast(rules, key=…))",
        )
    if any(state.name == broadcast for state in states):
        raise Invalid(
            "a state has the name of the broadcast stream",
            where=f"{name}.{broadcast}",
            hint='rename the state, or the stream: hf.broadcast(…, name="rules")',
        )


def _check_combined(processor: KeyedTable, combines: bool) -> None:
    where = f"{type(processor).__qualname__}.combined"
    if processor.combined is None:
        return
    if not combines:
        raise Invalid("columns of combined events, and nothing combines", where=where, hint="define combine")
    schema_of(processor.combined)


def _check_no_pickling(processor: object, states: Sequence[State]) -> None:
    """Refuse handlers that pickle into bytes: no later version could be checked against such a state."""
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
                    "a handler pickles, and a state holds bytes: a state has a schema",
                    where=f"{type(processor).__qualname__}.{name}",
                    found=f"{uses[0]}, and the state {binary.name} of a type with binary",
                    hint='name the fields as "struct<…>"; decode pickled events in a function of their own',
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
        return  # a test without Spark, where nothing is sent anywhere
    error = _failure(cloudpickle, processor)
    if error is None:
        return
    where = type(processor).__qualname__
    for attribute, value in _attributes(processor).items():
        inner = _failure(cloudpickle, value)
        if inner is not None:
            raise Invalid(
                "a processor is sent to Spark's workers, and an attribute of it cannot be",
                where=f"{where}.{attribute}",
                found=f"{type(value).__name__}: {inner}",
                hint="make it in on_start, which runs in the worker",
            )
    raise Invalid(
        "a processor is sent to Spark's workers, and this one cannot be",
        where=where,
        found=error,
        hint="what its methods use from around the class is sent along: make it in on_start",
    )


def _failure(pickler: Any, value: object) -> str | None:
    try:
        pickler.dumps(value)
    except Exception as error:  # whatever a foreign object raises
        return f"{type(error).__name__}: {error}"
    return None


def _attributes(processor: object) -> dict[str, Any]:
    slots = [name for base in type(processor).__mro__ for name in getattr(base, "__slots__", ())]
    in_slots = {name: getattr(processor, name) for name in slots if hasattr(processor, name)}
    return {**in_slots, **getattr(processor, "__dict__", {})}
