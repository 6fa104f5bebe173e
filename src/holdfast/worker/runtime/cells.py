"""The columns of a state behind the attributes of state objects.

A runner creates one state object per key, a few thousand at a time. Before the handlers run, `load` fills the
objects from the stored columns; after they have run, `collect` converts the values back to columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from holdfast.errors import Invalid
from holdfast.worker.arrays import placed, whole
from holdfast.worker.declarations.state_descriptors import NEVER_EXPIRED, State, StateKind
from holdfast.worker.declarations.types import cells_of
from holdfast.worker.interface import STAMP_PREFIX, VALUE_PREFIX, Moment, Touched
from holdfast.worker.runtime.columns import Unfit, column_of, freezer, values_of
from holdfast.worker.runtime.handles import AggregatingState, ReducingState, TimedAggregating, TimedReducing
from holdfast.worker.runtime.ttl import TtlRule


class WrongValue(Exception):
    """The exception for a value that the type of its state does not allow.

    Attributes:
        state: The name of the state.
        position: The index of the key.
        why: The error, with the found and the expected value.
    """

    def __init__(self, state: str, position: int, why: Invalid) -> None:
        super().__init__(state, position)
        self.state = state
        self.position = position
        self.why = why


class Cells:
    """The base class for one state of all keys of a pass.

    A subclass defines the slots of a state object (`slots`), other attributes of the state object's class
    (`attributes`), and the function that returns the value of an empty slot (`fill`).
    """

    slots: tuple[str, ...] = ()
    fill: Callable[[Any], Any] | None = None

    def __init__(self, state: State, rule: TtlRule | None) -> None:
        self.state = state
        self.name = state.name
        self.rule = rule

    def attributes(self) -> dict[str, Any]:
        """Return the class attributes of state objects for this state, except its slots."""
        return {}

    def bind(self, made: type) -> None:
        """Take the slot descriptors from the new class of state objects."""

    def begin(self, touched: Touched, moment: Moment) -> None:
        """Start a pass: read the stored columns of the touched keys."""

    def load(self, states: Sequence[Any], first: int) -> None:
        """Fill new state objects, which belong to the keys from index `first` on."""

    def collect(self, states: Sequence[Any], first: int) -> None:
        """Collect the values of state objects after the handlers have run.

        Raises:
            WrongValue: A value does not match the state's type.
        """

    def forget(self, position: int) -> None:
        """Discard the changes of a key, whose state object is created again."""

    def columns(self) -> dict[str, pa.Array]:
        """Return the columns of the row table that changed in the pass."""
        return {}

    def elements(self) -> pa.Table | None:
        """Return the writes to the side table, or None without writes."""
        return None

    def clear(self, state: Any) -> None:
        """Clear the state of one key, given by its state object."""


def changed(name: str, parts: list[pa.Array], stored: pa.Array) -> dict[str, pa.Array]:
    """Return a collected column by name, or an empty dict if it equals the stored column."""
    if not parts:
        return {}
    column = pa.concat_arrays(parts)
    return {} if column.equals(stored) else {name: column}


def consume(iterator: Iterable[Any]) -> None:
    """Run an iterator to its end and discard its values."""
    deque(iterator, maxlen=0)


class SlotValues(Cells):
    """The base class for a value in a plain slot of the state object; `fill` returns the value of an empty
    slot.
    """

    def __init__(self, state: State, rule: TtlRule | None) -> None:
        super().__init__(state, rule)
        self.slots = (self.name,)
        self._read = attrgetter(self.name)
        self._slot: Any = None
        self._stored: pa.Array = None
        self._parts: list[pa.Array] = []

    def bind(self, made: type) -> None:
        """Take the slot's descriptor from the class."""
        self._slot = vars(made)[self.name]

    def clear(self, state: Any) -> None:
        """Empty the slot."""
        try:
            self._slot.__delete__(state)
        except AttributeError:
            return  # the slot was empty

    def none_at(self, position: int) -> WrongValue:
        """Return the error for a key whose state with a default was set to None."""
        return WrongValue(
            self.name,
            position,
            Invalid("a state with a default cannot be set to None", code="HF-E2476", hint=use_del(self.name)),
        )


class PlainValues(SlotValues):
    """A value state without a TTL; the slot is empty while the state is unset."""

    def __init__(self, state: State, rule: TtlRule | None) -> None:
        super().__init__(state, rule)
        self._collecting = False
        self._unset = 0
        self.fill = self._empty

    def begin(self, touched: Touched, moment: Moment) -> None:  # noqa: ARG002 - as the base
        """Start a pass."""
        self._stored = whole(touched.stored(f"{VALUE_PREFIX}{self.name}"))
        self._parts = []

    def load(self, states: Sequence[Any], first: int) -> None:
        """Fill the slots of the keys with a stored value."""
        column = self._stored.slice(first, len(states))
        missing = column.null_count
        if missing == len(column):
            return
        put, values = self._slot.__set__, values_of(column)
        if not missing:
            consume(map(put, states, values))
            return
        for state, value in zip(states, values, strict=True):
            if value is not None:
                put(state, value)

    def collect(self, states: Sequence[Any], first: int) -> None:
        """Read the values of all slots; `_empty` counts those without a value."""
        self._collecting, self._unset = True, 0
        try:
            values = list(map(self._read, states))
        finally:
            self._collecting = False
        column = column_in(self.state, values, first)
        if column.null_count > self._unset and self.state.default is not None:
            raise self.none_at(first + next(at for at, state in enumerate(states) if self._is_none(state)))
        self._parts.append(column)

    def columns(self) -> dict[str, pa.Array]:
        """Return the values column if it changed."""
        return changed(f"{VALUE_PREFIX}{self.name}", self._parts, self._stored)

    def _empty(self, _: Any) -> Any:
        if self._collecting:
            self._unset += 1
            return None
        return self.state.default

    def _is_none(self, state: Any) -> bool:
        try:
            return self._slot.__get__(state) is None
        except AttributeError:
            return False


class TimedValues(SlotValues):
    """A value state with a TTL in processing time; the slot is filled when the value is written.

    All writes of a pass have the same timestamp, so a filled slot needs no timestamp of its own. The value of
    an empty slot is returned by `fill`. With "read_and_write", reading fills the slot, too.
    """

    def __init__(self, state: State, rule: TtlRule) -> None:
        super().__init__(state, rule)
        self.fill = self._unwritten
        self._rule = rule
        self._stored_stamps: pa.Array = None
        self._stamps: pa.Array = None  # the stored timestamps, with values for the missing ones
        self._first = 0  # the first key of the current portion
        self._values: list[Any] = []
        self._expired: set[int] = set()
        self._gone: set[int] = set()
        self._kept: list[int] | None = None
        self._stamp_parts: list[pa.Array] = []

    def begin(self, touched: Touched, moment: Moment) -> None:
        """Start a pass."""
        self._rule.begin(moment)
        self._stored = whole(touched.stored(f"{VALUE_PREFIX}{self.name}"))
        self._stored_stamps = stamps = whole(touched.stored(f"{STAMP_PREFIX}{self.name}"))
        if stamps.null_count > self._stored.null_count:
            unstamped = pc.and_(stamps.is_null(), self._stored.is_valid())
            stamps = pc.if_else(unstamped, pa.scalar(self._rule.origin, pa.int64()), stamps)
        self._stamps = stamps
        self._first, self._values, self._gone = 0, [], set()
        self._parts, self._stamp_parts = [], []

    def load(self, states: Sequence[Any], first: int) -> None:
        """Load the stored values of some keys; keep the loaded ones if a key is run again."""
        if self._first <= first and first + len(states) <= self._first + len(self._values):
            return
        self._first = first
        self._values = values_of(self._stored.slice(first, len(states)))
        stamps = self._stamps.slice(first, len(states))
        self._expired = set()
        if stamps.null_count < len(stamps) and self._rule.cutoff > NEVER_EXPIRED:
            late = pc.fill_null(pc.less_equal(stamps, pa.scalar(self._rule.cutoff, pa.int64())), False)
            self._expired = set((np.flatnonzero(late.to_numpy(zero_copy_only=False)) + first).tolist())

    def collect(self, states: Sequence[Any], first: int) -> None:
        """Read the values of all slots; unwritten values keep their stored value unless they have expired."""
        kept: list[int] = []
        self._kept = kept
        try:
            values = list(map(self._read, states))
        finally:
            self._kept = None
        column = column_in(self.state, values, first)
        if column.null_count > len(kept) and self.state.default is not None:
            unwritten = set(kept)
            at = next(at for at, value in enumerate(values) if value is None and first + at not in unwritten)
            raise self.none_at(first + at)
        stamps = pa.array(np.full(len(states), self._rule.clock.stamp))
        if column.null_count:
            stamps = pc.if_else(column.is_valid(), stamps, pa.scalar(None, pa.int64()))
        if kept:
            places = np.array(kept, np.int64) - first
            left = pa.array([None if position in self._gone else position for position in kept], pa.int64())
            column = placed(column, places, self._stored.take(left))
            stamps = placed(stamps, places, self._stamps.take(left))
        self._parts.append(column)
        self._stamp_parts.append(stamps)

    def forget(self, position: int) -> None:
        """Discard the changes of a key."""
        self._gone.discard(position)

    def columns(self) -> dict[str, pa.Array]:
        """Return the columns of values and timestamps if they changed."""
        return {
            **changed(f"{VALUE_PREFIX}{self.name}", self._parts, self._stored),
            **changed(f"{STAMP_PREFIX}{self.name}", self._stamp_parts, self._stored_stamps),
        }

    def clear(self, state: Any) -> None:
        """Empty the slot and hide the stored value."""
        self._gone.add(state._at)
        super().clear(state)

    def _unwritten(self, state: Any) -> Any:
        """Return the stored value for an empty slot, or the default or None if it is unset or has expired."""
        at: int = state._at
        if self._kept is not None:
            self._kept.append(at)
            return None
        value = self._values[at - self._first]
        if value is None or at in self._gone:
            return self.state.default
        if at in self._expired:
            self._gone.add(at)
            return value if self._rule.shows_expired else self.state.default
        if self._rule.refreshes:
            self._slot.__set__(state, value)
        return value


class HeldValues(Cells, ABC):
    """The base class for values in a slot that is read through a property or a handle.

    A value has a timestamp if the state has a TTL; None is unset.
    """

    frozen = True

    def __init__(self, state: State, rule: TtlRule | None) -> None:
        super().__init__(state, rule)
        self.slot = f"_v_{self.name}"
        self.stamp_slot = f"_t_{self.name}"
        self.slots = (self.slot,) if rule is None else (self.slot, self.stamp_slot)
        self._stored: pa.Array = None
        self._stamps: pa.Array = None
        self._parts: list[pa.Array] = []
        self._stamp_parts: list[pa.Array] = []

    def begin(self, touched: Touched, moment: Moment) -> None:
        """Start a pass."""
        self._stored = whole(touched.stored(f"{VALUE_PREFIX}{self.name}"))
        self._parts, self._stamp_parts = [], []
        if self.rule is not None:
            self.rule.begin(moment)
            self._stamps = whole(touched.stored(f"{STAMP_PREFIX}{self.name}"))

    def load(self, states: Sequence[Any], first: int) -> None:
        """Fill the slots of state objects with the stored values and timestamps."""
        column = self._stored.slice(first, len(states))
        values = values_of(column, frozen=self.frozen)
        stamps: list[Any] = []
        if self.rule is not None:
            stamps = values_of(self._stamps.slice(first, len(states)))
            if None in stamps:
                origin = self.rule.origin
                stamps = [
                    origin if stamp is None and value is not None else stamp
                    for stamp, value in zip(stamps, values, strict=True)
                ]
        self.put(states, values, stamps)

    def collect(self, states: Sequence[Any], first: int) -> None:
        """Collect the values and timestamps of state objects as columns."""
        values, stamps = self.take(states)
        self._parts.append(column_in(self.state, values, first))
        if self.rule is not None:
            self._stamp_parts.append(pa.array(stamps, pa.int64()))

    def columns(self) -> dict[str, pa.Array]:
        """Return the columns of values and timestamps if they changed."""
        columns = changed(f"{VALUE_PREFIX}{self.name}", self._parts, self._stored)
        if self.rule is not None:
            columns |= changed(f"{STAMP_PREFIX}{self.name}", self._stamp_parts, self._stamps)
        return columns

    @abstractmethod
    def put(self, states: Sequence[Any], values: list[Any], stamps: list[Any]) -> None:
        """Put values and, with a TTL, timestamps into state objects."""

    @abstractmethod
    def take(self, states: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return the values of state objects and, with a TTL, their timestamps."""


def refusal(name: str, instead: str) -> Callable[[Any, Any], None]:
    """Return a property setter that raises an error naming the alternative."""

    def refuse(_: Any, __: Any) -> None:
        raise AttributeError(f"state.{name} cannot be assigned: use {instead}")

    return refuse


def column_in(state: State, values: list[Any], first: int) -> pa.Array:
    """Return the values of the keys from index `first` on as a column.

    Raises:
        WrongValue: A value does not match the state's type.
    """
    try:
        return column_of(values, state.type)
    except Unfit as unfit:
        raise WrongValue(state.name, first + unfit.at, unfit.why) from unfit


def use_del(name: str) -> str:
    """Return the hint for clearing a value."""
    return f"use `del state.{name}` to clear the value"


class PropertyValues(HeldValues):
    """A value state with a TTL or of a nested type, read and written through a property."""

    def __init__(self, state: State, rule: TtlRule | None) -> None:
        super().__init__(state, rule)
        self._freeze = freezer(state.type)
        self._default = state.default if self._freeze is None else self._freeze(state.default)
        self._slot: Any = None
        self._stamp_slot: Any = None

    def bind(self, made: type) -> None:
        """Take the slots' descriptors from the class."""
        self._slot = vars(made)[self.slot]
        self._stamp_slot = vars(made)[self.stamp_slot] if self.rule is not None else None

    def attributes(self) -> dict[str, Any]:
        """Return the property of the state."""
        read = self._reader() if self.rule is None else self._timed_reader(self.rule)
        write = self._writer() if self.rule is None else self._timed_writer(self.rule)
        return {self.name: property(read, write)}

    def put(self, states: Sequence[Any], values: list[Any], stamps: list[Any]) -> None:
        """Put values and timestamps into the slots."""
        consume(map(self._slot.__set__, states, values))
        if self.rule is not None:
            consume(map(self._stamp_slot.__set__, states, stamps))

    def take(self, states: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return the values and timestamps in the slots."""
        values = list(map(self._slot.__get__, states))
        return values, list(map(self._stamp_slot.__get__, states)) if self.rule is not None else []

    def clear(self, state: Any) -> None:
        """Unset the value."""
        self._slot.__set__(state, None)
        if self.rule is not None:
            self._stamp_slot.__set__(state, None)

    def _reader(self) -> Callable[[Any], Any]:
        held, default = attrgetter(self.slot), self._default

        def read(state: Any) -> Any:
            value = held(state)
            return default if value is None else value

        return read

    def _writer(self) -> Callable[[Any, Any], None]:
        slot, checked = self.slot, self._checked

        def write(state: Any, value: Any) -> None:
            setattr(state, slot, checked(value))

        return write

    def _timed_reader(self, rule: TtlRule) -> Callable[[Any], Any]:
        held, stamped, default = attrgetter(self.slot), attrgetter(self.stamp_slot), self._default
        stamp_slot, clear, refreshes = self.stamp_slot, self.clear, rule.refreshes

        def read(state: Any) -> Any:
            value = held(state)
            if value is None:
                return default
            stamp = stamped(state)
            if stamp <= rule.cutoff:
                clear(state)
                return value if rule.shows_expired else default
            if refreshes:
                setattr(state, stamp_slot, rule.stamp(stamp))
            return value

        return read

    def _timed_writer(self, rule: TtlRule) -> Callable[[Any, Any], None]:
        slot, stamp_slot, clear = self.slot, self.stamp_slot, self.clear
        stamped, checked = attrgetter(self.stamp_slot), self._checked
        clock = None if rule.event else rule.clock

        def write(state: Any, value: Any) -> None:
            value = checked(value)
            if value is None:
                clear(state)
                return
            setattr(state, slot, value)
            setattr(state, stamp_slot, clock.stamp if clock is not None else rule.stamp(stamped(state)))

        return write

    def _checked(self, value: Any) -> Any:
        if value is None and self.state.default is not None:
            raise TypeError(f"None was assigned to state.{self.name}: {use_del(self.name)}")
        return value if self._freeze is None else self._freeze(value)


class Accumulators(HeldValues):
    """A reducing or aggregating state; one handle per key contains the value and its timestamp."""

    def __init__(self, state: State, rule: TtlRule | None) -> None:
        super().__init__(state, rule)
        self.slots = (self.slot,)
        self.frozen = state.kind is StateKind.REDUCING
        fields: dict[str, Any] = {"__slots__": (), "name": self.name, "rule": rule}
        base: type
        if state.kind is StateKind.REDUCING:
            base = ReducingState if rule is None else TimedReducing
            functions = {"function": state.function, "freeze": freezer(state.type)}
        else:
            base = AggregatingState if rule is None else TimedAggregating
            functions = {"thaw": thawer(state.type)}
            fields["aggregate"] = state.aggregate
        fields |= {name: staticmethod(made) for name, made in functions.items() if made is not None}
        self._handle = type(base.__name__, (base,), fields)
        self._slot: Any = None

    def bind(self, made: type) -> None:
        """Take the slot's descriptor from the class."""
        self._slot = vars(made)[self.slot]

    def attributes(self) -> dict[str, Any]:
        """Return a read-only property whose value is the handle."""
        return {self.name: property(attrgetter(self.slot), refusal(self.name, f"state.{self.name}.add(…)"))}

    def put(self, states: Sequence[Any], values: list[Any], stamps: list[Any]) -> None:
        """Create the handles with their values and timestamps."""
        make = self._handle
        handles = [make() for _ in values]
        for handle, value in zip(handles, values, strict=True):
            handle.value = value
        if self.rule is not None:
            for handle, stamp in zip(handles, stamps, strict=True):
                handle.stamp = stamp
        consume(map(self._slot.__set__, states, handles))

    def take(self, states: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return the values and timestamps of the handles."""
        handles = list(map(self._slot.__get__, states))
        values = [handle.value for handle in handles]
        if self.rule is None:
            return values, []
        return values, [None if handle.value is None else handle.stamp for handle in handles]

    def clear(self, state: Any) -> None:
        """Clear the value of the key's handle."""
        self._slot.__get__(state).clear()


def thawer(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Return the function that converts a nested accumulator to a mutable one; None for a simple type."""
    if kinds.is_struct(kind):
        names = tuple(field.name for field in kind)

        def thaw_struct(value: Any) -> Any:
            return (
                dict(zip(names, cells_of(value, names), strict=True)) if isinstance(value, tuple) else value
            )

        return thaw_struct
    if kinds.is_list(kind) or kinds.is_large_list(kind):
        return lambda value: list(value) if isinstance(value, tuple) else value
    return None
