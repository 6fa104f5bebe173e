"""The states that a processor class declares: collection and checks."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final, get_args

import pyarrow as pa
import pyarrow.types as kinds

from holdfast.errors import Invalid
from holdfast.worker.declarations.handler_arguments import Clock
from holdfast.worker.declarations.state_descriptors import (
    Aggregate,
    OnDisable,
    State,
    StateKind,
    Ttl,
    TtlUpdate,
    TtlVisibility,
)
from holdfast.worker.declarations.types import check_paths, check_value, type_text

UPDATES: Final = get_args(TtlUpdate)
VISIBILITIES: Final = get_args(TtlVisibility)
CLOCKS: Final = get_args(Clock)
ON_DISABLE: Final = get_args(OnDisable)
# Attributes of the base classes and of the `state` argument; a state cannot have their names.
RESERVED: Final = ("clear", "combined")

_MAX_LONG: Final = 2**63 - 1
_PICKLED: Final = 'declare the fields of the object as "struct<…>" instead of pickling it'


def states_of(processor: type) -> tuple[State, ...]:
    """Return the states of a class in the order of their declaration, those of base classes first.

    A subclass that declares a state again replaces it in the same position; a subclass that sets it to None
    removes it.

    Raises:
        Invalid: A name is reserved, hides a method or is a duplicate, or a declaration is invalid.
    """
    where = processor.__qualname__
    declared: dict[str, State] = {}
    for base in reversed(processor.__mro__):
        for name, value in vars(base).items():
            if isinstance(value, State):
                _check_name(name, processor, where)
                declared[name] = dataclasses.replace(value, name=name)
            elif name in declared and value is None:
                del declared[name]
    states = tuple(declared.values())
    _check_former_names(states, where)
    for state in states:
        check_state(state, f"{where}.{state.name}")
    return states


def check_state(state: State, where: str) -> None:
    """Check the declaration of one state.

    Raises:
        Invalid: Two options contradict each other, for example a default of a different type.
    """
    type_text(state.type)
    check_paths(where, state.type, state.fields_were, state.field_defaults)
    if (state.key_type is not None) != (state.kind is StateKind.MAP):
        raise Invalid(
            "the key type does not match the kind of state",
            code="HF-E2410",
            where=where,
            found=state.kind.value
            + (" without a key type" if state.key_type is None else " with a key type"),
            expected="a key type for a map, and none for any other state",
            hint="write hf.map(key_type, type) for a map, and a single type for any other state",
        )
    if "" in state.former_names:
        raise Invalid(
            "the former name of a state is empty",
            code="HF-E2411",
            where=where,
            hint='give the old name, as in was="visits", or remove `was`',
        )
    if state.key_type is not None:
        _check_key_type(state.key_type, where)
    if state.default is not None:
        _check_default(state, where)
    if state.kind is StateKind.REDUCING:
        _check_function(state.function, where)
    if state.kind is StateKind.AGGREGATING:
        _check_aggregate(state, where)
    if state.ttl is not None:
        check_ttl(state.ttl, where)


def check_ttl(ttl: Ttl, where: str) -> None:
    """Check the options of a TTL.

    Raises:
        Invalid: A duration is out of range, or an option has an unknown value.
    """
    if not 0 < ttl.duration_ms <= _MAX_LONG:
        raise Invalid(
            "the TTL is out of range",
            code="HF-E2412",
            where=where,
            found=f"{ttl.duration_ms} milliseconds",
            expected="at least 1 millisecond",
            hint='write a duration, as in ttl="7 days", or remove ttl= to keep values forever',
        )
    for setting, allowed in (
        ("update", UPDATES),
        ("visibility", VISIBILITIES),
        ("clock", CLOCKS),
        ("on_disable", ON_DISABLE),
    ):
        word = getattr(ttl, setting)
        if word not in allowed:
            raise Invalid(
                f"unknown value of {setting} in a TTL",
                code="HF-E2413",
                where=where,
                found=repr(word),
                expected="one of " + ", ".join(f'"{choice}"' for choice in allowed),
                hint=f"write {setting}={allowed[0]!r}, or remove {setting}=",
            )
    age = ttl.age_from
    in_range = isinstance(age, int) and not isinstance(age, bool) and 0 <= age <= _MAX_LONG
    if age != "restore" and not in_range:
        raise Invalid(
            "invalid age_from in a TTL",
            code="HF-E2414",
            where=where,
            found=repr(age),
            expected='"restore", epoch milliseconds or a datetime with a time zone',
            hint='write age_from="restore", or a datetime with a time zone',
        )


def has_binary(read: pa.DataType) -> bool:
    """Return whether a type is binary or contains a binary type."""
    children = [read.field(at).type for at in range(read.num_fields)]
    return kinds.is_binary(read) or any(has_binary(child) for child in children)


def accepts(function: Callable[..., Any], count: int) -> bool:
    """Return whether a function accepts `count` positional arguments; True if its signature is unknown."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _check_name(name: str, processor: type, where: str) -> None:
    if name.startswith(("_", "holdfast", "on_")) or name in RESERVED:
        raise Invalid(
            "the name of a state is reserved",
            code="HF-E2415",
            where=f"{where}.{name}",
            expected="a name other than `clear` and `combined`, not starting with `_`, `on_` or `holdfast`",
            hint="rename the attribute",
        )
    for base in processor.__mro__:
        other = vars(base).get(name)
        if other is not None and not isinstance(other, State):
            raise Invalid(
                "a state and another attribute of the class have the same name",
                code="HF-E2416",
                where=f"{where}.{name}",
                hint="rename the state; to remove an inherited state, assign None to its name",
            )


def _check_former_names(states: Sequence[State], where: str) -> None:
    names = [state.name for state in states]
    seen: dict[str, str] = {}
    for state, was in ((each, name) for each in states for name in each.former_names):
        if was in names:
            raise Invalid(
                "the former name of a state is still in use",
                code="HF-E2417",
                where=f"{where}.{state.name}",
                found=f'was="{was}", and a state {was}',
                hint=f"remove `was`, or rename the state {was} to a name that was never used",
            )
        if was in seen:
            raise Invalid(
                "two states have the same former name",
                code="HF-E2418",
                where=where,
                found=f'was="{was}" on {seen[was]} and on {state.name}',
                hint="remove `was` from the state that never had this name",
            )
        seen[was] = state.name


def _check_key_type(read: pa.DataType, where: str) -> None:
    if kinds.is_nested(read):
        raise Invalid(
            "the key type of a map is nested",
            code="HF-E2419",
            where=where,
            found=type_text(read),
            expected="a simple type, such as string or long",
            hint="join the parts into one string, or make them part of the stream's key",
        )


def _check_default(state: State, where: str) -> None:
    if state.kind is not StateKind.VALUE:
        raise Invalid(
            "only a value state can have a default",
            code="HF-E2420",
            where=where,
            found=f"default={state.default!r} on a state of kind {state.kind.value}",
            hint="remove default=; an unset list or map is empty, any other unset state is None",
        )
    check_value(state.default, state.type, f"{where}, default")
    if kinds.is_binary(state.type) and _looks_pickled(bytes(state.default)):
        raise Invalid(
            "the default of a state is a pickled object", code="HF-E2421", where=where, hint=_PICKLED
        )


def _looks_pickled(data: bytes) -> bool:
    # Pickle protocols 2 to 5 begin with their number and end with the STOP opcode.
    return data[:1] == b"\x80" and data[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05") and data[-1:] == b"."


def _check_function(function: Any, where: str) -> None:
    if not callable(function) or not accepts(function, 2):
        raise Invalid(
            "a reducing state needs a function that merges two values",
            code="HF-E2422",
            where=where,
            found=repr(function),
            expected="a function (a, b), such as hf.add, hf.least or hf.greatest",
            hint='write hf.reducing("long", hf.add)',
        )


def _check_aggregate(state: State, where: str) -> None:
    aggregate = state.aggregate
    if isinstance(aggregate, type):
        raise Invalid(
            "the aggregate is a class, not an instance",
            code="HF-E2423",
            where=where,
            found=aggregate.__name__,
            hint=f"write {aggregate.__name__}()",
        )
    if not isinstance(aggregate, Aggregate):
        raise Invalid(
            "the aggregate is not an hf.Aggregate",
            code="HF-E2424",
            where=where,
            found=repr(aggregate),
            expected="an instance of a subclass of hf.Aggregate",
            hint="subclass hf.Aggregate, define create and add, and pass an instance",
        )
    for name, count in (("create", 0), ("add", 2), ("result", 1)):
        if not accepts(getattr(aggregate, name), count):
            raise Invalid(
                f"{type(aggregate).__name__}.{name} has the wrong arguments",
                code="HF-E2425",
                where=where,
                hint=f"write def {name}({', '.join(['self', 'accumulator', 'value'][: count + 1])})",
            )
    try:
        created = aggregate.create()
    except Exception as error:
        raise Invalid(
            f"{type(aggregate).__name__}.create() failed",
            code="HF-E2426",
            where=where,
            found=f"{type(error).__name__}: {error}",
            hint="return the initial accumulator without using anything that on_start sets up",
        ) from error
    check_value(created, state.type, f"{where}, result of create()")
