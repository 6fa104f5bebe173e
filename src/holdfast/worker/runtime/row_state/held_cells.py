"""Values behind properties, and the handles of reducing and aggregating states, as cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from holdfast.worker.declarations.state_descriptors import Kind, State
from holdfast.worker.declarations.value_checks import cells_of
from holdfast.worker.runtime.event_rows import freezer
from holdfast.worker.runtime.row_state.cells import HeldValues, consume, refusal, use_del
from holdfast.worker.runtime.row_state.handles import Aggregating, Reducing, TimedAggregating, TimedReducing
from holdfast.worker.runtime.ttl import Rule


class PropertyValues(HeldValues):
    """A value with a TTL, or of a type with parts: a property."""

    def __init__(self, state: State, rule: Rule | None) -> None:
        super().__init__(state, rule)
        self._freeze = freezer(state.type)
        self._default = state.default if self._freeze is None else self._freeze(state.default)
        self._slot: Any = None
        self._stamp_slot: Any = None

    def bind(self, made: type) -> None:
        """Learn the slots' descriptors."""
        self._slot = vars(made)[self.slot]
        self._stamp_slot = vars(made)[self.stamp_slot] if self.rule is not None else None

    def attributes(self) -> dict[str, Any]:
        """The property."""
        read = self._reader() if self.rule is None else self._timed_reader(self.rule)
        write = self._writer() if self.rule is None else self._timed_writer(self.rule)
        return {self.name: property(read, write)}

    def put(self, states: Sequence[Any], values: list[Any], stamps: list[Any]) -> None:
        """Fill the slots."""
        consume(map(self._slot.__set__, states, values))
        if self.rule is not None:
            consume(map(self._stamp_slot.__set__, states, stamps))

    def take(self, states: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Read the slots."""
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

    def _timed_reader(self, rule: Rule) -> Callable[[Any], Any]:
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

    def _timed_writer(self, rule: Rule) -> Callable[[Any, Any], None]:
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
    """A reducing or aggregating state: a handle a key that holds the value, and its stamp."""

    def __init__(self, state: State, rule: Rule | None) -> None:
        super().__init__(state, rule)
        self.slots = (self.slot,)
        self.frozen = state.kind is Kind.REDUCING
        fields: dict[str, Any] = {"__slots__": (), "name": self.name, "rule": rule}
        base: type
        if state.kind is Kind.REDUCING:
            base = Reducing if rule is None else TimedReducing
            functions = {"function": state.function, "freeze": freezer(state.type)}
        else:
            base = Aggregating if rule is None else TimedAggregating
            functions = {"thaw": thawer(state.type)}
            fields["aggregate"] = state.aggregate
        fields |= {name: staticmethod(made) for name, made in functions.items() if made is not None}
        self._handle = type(base.__name__, (base,), fields)
        self._slot: Any = None

    def bind(self, made: type) -> None:
        """Learn the slot's descriptor."""
        self._slot = vars(made)[self.slot]

    def attributes(self) -> dict[str, Any]:
        """A property that gives the handle."""
        return {self.name: property(attrgetter(self.slot), refusal(self.name, f"state.{self.name}.add(…)"))}

    def put(self, states: Sequence[Any], values: list[Any], stamps: list[Any]) -> None:
        """Make the handles."""
        make = self._handle
        handles = [make() for _ in values]
        for handle, value in zip(handles, values, strict=True):
            handle.value = value
        if self.rule is not None:
            for handle, stamp in zip(handles, stamps, strict=True):
                handle.stamp = stamp
        consume(map(self._slot.__set__, states, handles))

    def take(self, states: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Read the handles."""
        handles = list(map(self._slot.__get__, states))
        values = [handle.value for handle in handles]
        if self.rule is None:
            return values, []
        return values, [None if handle.value is None else handle.stamp for handle in handles]

    def clear(self, state: Any) -> None:
        """Clear the handle."""
        self._slot.__get__(state).clear()


def thawer(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Give what turns an accumulator of a type with parts into lists and dicts, or None."""
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
