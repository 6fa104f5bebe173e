"""The columns of a state behind the attributes of state objects: loaded, collected and compared.

A runner makes one state object a key, a few thousand at a time. Before the handlers run, `load` fills the
objects from the stored columns; afterwards `collect` takes the values out again as columns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

import pyarrow as pa

from holdfast.errors import Invalid
from holdfast.worker.declared.states import State
from holdfast.worker.interface import STAMP_PREFIX, VALUE_PREFIX, Moment, Touched
from holdfast.worker.running.columns import Unfit, column_of
from holdfast.worker.running.events import values_of
from holdfast.worker.running.timers import whole
from holdfast.worker.running.ttl import Rule


class WrongValue(Exception):
    """A state holds what its type does not allow.

    Attributes:
        state: The name of the state.
        position: The key.
        why: What was found and expected.
    """

    def __init__(self, state: str, position: int, why: Invalid) -> None:
        super().__init__(state, position)
        self.state = state
        self.position = position
        self.why = why


class Cells:
    """One state of all keys of a pass.

    A subclass says which slots a state object has for it (`slots`), what else its class has
    (`attributes`), and what fills a slot that is read while it is empty (`fill`).
    """

    slots: tuple[str, ...] = ()
    fill: Callable[[Any], Any] | None = None

    def __init__(self, state: State, rule: Rule | None) -> None:
        self.state = state
        self.name = state.name
        self.rule = rule

    def attributes(self) -> dict[str, Any]:
        """What the class of state objects has for this state besides its slots."""
        return {}

    def bind(self, made: type) -> None:
        """Learn the class of state objects, once it is made."""

    def begin(self, touched: Touched, moment: Moment) -> None:
        """Start a pass."""

    def load(self, states: Sequence[Any], first: int) -> None:
        """Fill new state objects, those of the keys from `first` on."""

    def collect(self, states: Sequence[Any], first: int) -> None:
        """Take out what the handlers left.

        Raises:
            WrongValue: A value is not of the state's type.
        """

    def forget(self, position: int) -> None:
        """Drop what a key did; its state object is made anew."""

    def columns(self) -> dict[str, pa.Array]:
        """The columns that changed in the pass."""
        return {}

    def clear(self, state: Any) -> None:
        """Clear the state of one key."""


def changed(name: str, parts: list[pa.Array], stored: pa.Array) -> dict[str, pa.Array]:
    """Give a collected column, or nothing where it is as it was."""
    if not parts:
        return {}
    column = pa.concat_arrays(parts)
    return {} if column.equals(stored) else {name: column}


def consume(iterator: Iterable[Any]) -> None:
    """Run an iterator to its end, for its effect."""
    deque(iterator, maxlen=0)


class PlainValues(Cells):
    """A value without TTL: a bare slot of the state object, empty while the state is unset."""

    def __init__(self, state: State, rule: Rule | None) -> None:
        super().__init__(state, rule)
        self.slots = (self.name,)
        self._read = attrgetter(self.name)
        self._slot: Any = None
        self._collecting = False
        self._unset = 0
        self._parts: list[pa.Array] = []
        self._stored: pa.Array = None
        self.fill = self._empty

    def bind(self, made: type) -> None:
        """Learn the slot's descriptor."""
        self._slot = vars(made)[self.name]

    def begin(self, touched: Touched, moment: Moment) -> None:  # noqa: ARG002 - as the base
        """Start a pass."""
        self._stored = whole(touched.stored(f"{VALUE_PREFIX}{self.name}"))
        self._parts = []

    def load(self, states: Sequence[Any], first: int) -> None:
        """Fill the slots of those that are set."""
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
        """Read all slots; `_empty` counts those without a value."""
        self._collecting, self._unset = True, 0
        try:
            values = list(map(self._read, states))
        finally:
            self._collecting = False
        column = column_in(self.state, values, first)
        if column.null_count > self._unset and self.state.default is not None:
            at = next(at for at, each in enumerate(states) if self._is_none(each))
            raise WrongValue(self.name, first + at, Invalid("None was assigned", hint=use_del(self.name)))
        self._parts.append(column)

    def columns(self) -> dict[str, pa.Array]:
        """The column, if it changed."""
        return changed(f"{VALUE_PREFIX}{self.name}", self._parts, self._stored)

    def clear(self, state: Any) -> None:
        """Empty the slot."""
        try:
            self._slot.__delete__(state)
        except AttributeError:
            return  # it was empty

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


class HeldValues(Cells):
    """What is kept in a slot behind a property or a handle, maybe with a stamp; None is unset."""

    frozen = True

    def __init__(self, state: State, rule: Rule | None) -> None:
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
        """Put values, and stamps, where the attribute reads them."""
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
        """Take values and stamps out as columns."""
        values, stamps = self.take(states)
        self._parts.append(column_in(self.state, values, first))
        if self.rule is not None:
            self._stamp_parts.append(pa.array(stamps, pa.int64()))

    def columns(self) -> dict[str, pa.Array]:
        """The columns, if they changed."""
        found = changed(f"{VALUE_PREFIX}{self.name}", self._parts, self._stored)
        if self.rule is not None:
            found |= changed(f"{STAMP_PREFIX}{self.name}", self._stamp_parts, self._stamps)
        return found

    def put(self, states: Sequence[Any], values: list[Any], stamps: list[Any]) -> None:
        """Fill state objects."""
        raise NotImplementedError

    def take(self, states: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Give what state objects hold: values and, with a TTL, stamps."""
        raise NotImplementedError


def refusal(name: str, instead: str) -> Callable[[Any, Any], None]:
    """Give a setter that says what to write in its place."""

    def refuse(_: Any, __: Any) -> None:
        raise AttributeError(f"state.{name} is not assigned to: use {instead}")

    return refuse


def column_in(state: State, values: list[Any], first: int) -> pa.Array:
    """Give the values of the keys from `first` on as a column.

    Raises:
        WrongValue: One is not of the state's type.
    """
    try:
        return column_of(values, state.type)
    except Unfit as unfit:
        raise WrongValue(state.name, first + unfit.at, unfit.why) from unfit


def use_del(name: str) -> str:
    """Say how a value is cleared."""
    return f"write `del state.{name}` to clear it"
