"""The `state` argument of handlers: one object per key, with its lists and maps."""

from __future__ import annotations

import ctypes
import datetime as dt
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from holdfast.worker.arrays import placed, whole
from holdfast.worker.declarations.state_descriptors import SETTLED, State, StateKind
from holdfast.worker.interface import SLOT_PREFIX, Elements, Moment, Touched
from holdfast.worker.runtime.cells import (
    Accumulators,
    Cells,
    PlainValues,
    PropertyValues,
    TimedValues,
    WrongValue,
    refusal,
)
from holdfast.worker.runtime.columns import Unfit, column_of, freezer, values_of
from holdfast.worker.runtime.handles import ListState, MapState, StoredElements
from holdfast.worker.runtime.ttl import Clocks, TtlRule, rule_of

Handle = TypeVar("Handle", ListState, MapState)

# The number of keys whose elements are converted to Python values at a time.
_KEYS_AT_ONCE = 1024


@dataclass(slots=True)
class Written:
    """The writes to a side table, in columns.

    Attributes:
        position: The index of each element's key.
        slot: The slot of each element.
        dead: Whether each element is deleted.
        k: The map key of each element, or None for a list.
        v: The value of each element.
        t: The timestamp of each element, or None without a TTL.
    """

    position: list[int] = field(default_factory=list)
    slot: list[int] = field(default_factory=list)
    dead: list[bool] = field(default_factory=list)
    k: list[Any] = field(default_factory=list)
    v: list[Any] = field(default_factory=list)
    t: list[int | None] = field(default_factory=list)

    def add(self, position: int, slot: int, k: Any, v: Any, t: int | None, dead: bool = False) -> None:
        """Add the write or the deletion of an element."""
        self.position.append(position)
        self.slot.append(slot)
        self.dead.append(dead)
        self.k.append(k)
        self.v.append(v)
        self.t.append(t)

    def table(self, state: State) -> pa.Table:
        """Return the writes as a table.

        Raises:
            WrongValue: A value, or a map's key, does not match the state's type.
        """
        columns = {
            "position": pa.array(self.position, pa.int64()),
            "slot": pa.array(self.slot, pa.int64()),
            "dead": pa.array(self.dead, pa.bool_()),
        }
        try:
            if state.key_type is not None:
                columns["k"] = column_of(self.k, state.key_type)
            columns["v"] = column_of(self.v, state.type)
        except Unfit as unfit:
            raise WrongValue(state.name, self.position[unfit.at], unfit.why) from unfit
        if state.ttl is not None:
            columns["t"] = pa.array(self.t, pa.int64())
        return pa.table(columns)


class ElementCells(Cells, Generic[Handle]):
    """The base class for one list or map state of all keys of a pass.

    Each key whose handler uses the state has a handle. The slot of a state object is empty until the first
    use, so that a key whose handler does not use the state needs no handle.
    """

    base: type[Handle]
    instead = "state.{}.set([…])"  # the suggested replacement for an assignment to the state

    def __init__(self, state: State, rule: TtlRule | None) -> None:
        super().__init__(state, rule)
        self.slot = f"_v_{self.name}"
        self.slots = (self.slot,)
        freeze, read_key = freezer(state.type), key_reader(state.key_type)
        fields: dict[str, Any] = {"__slots__": (), "source": staticmethod(self.stored), "rule": rule}
        fields |= {"freeze": staticmethod(freeze) if freeze is not None else None}
        fields |= {"read_key": staticmethod(read_key)} if read_key is not None else {}
        self._handle: type[Handle] = type(self.base.__name__, (self.base,), fields)
        self._made: dict[int, Handle] = {}
        self._tables: list[pa.Table] = []
        self._next: dict[int, int | None] = {}  # the next slot of keys with writes; None: empty
        self._touched: Touched | None = None
        self._elements: Elements | None = None
        self._slots: pa.Array | None = None
        self._block: tuple[int, np.ndarray[Any, Any], StoredElements] | None = None
        self.fill = self._make

    def attributes(self) -> dict[str, Any]:
        """Return a read-only property whose value is the handle; it is created at the first use."""
        return {
            self.name: property(attrgetter(self.slot), refusal(self.name, self.instead.format(self.name)))
        }

    def begin(self, touched: Touched, moment: Moment) -> None:
        """Start a pass."""
        self._touched, self._elements, self._slots, self._block = touched, None, None, None
        self._made, self._tables, self._next = {}, [], {}
        if self.rule is not None:
            self.rule.begin(moment)

    def collect(self, states: Sequence[Any], first: int) -> None:  # noqa: ARG002 - as the base
        """Collect the writes of the handles."""
        if not self._made:
            return
        written = Written()
        for position, handle in self._made.items():
            self._next.update(self.write(handle, position, written))
        self._made = {}
        if written.position:
            self._tables.append(written.table(self.state))

    @abstractmethod
    def write(self, handle: Handle, position: int, written: Written) -> dict[int, int | None]:
        """Collect the writes of a handle; return the key's next slot if it changed."""

    def forget(self, position: int) -> None:
        """Discard a key's handle and its writes."""
        self._made.pop(position, None)

    def columns(self) -> dict[str, pa.Array]:
        """Return the column of next slots if it changed; null for an empty state."""
        if not self._next:
            return {}
        at = np.fromiter(self._next, np.int64, len(self._next))
        return {
            f"{SLOT_PREFIX}{self.name}": placed(
                self._next_slots(), at, pa.array(list(self._next.values()), pa.int64())
            )
        }

    def elements(self) -> pa.Table | None:
        """Return the writes to the side table, or None without writes."""
        return pa.concat_tables(self._tables) if self._tables else None

    def clear(self, state: Any) -> None:
        """Empty the list or map of a key."""
        getattr(state, self.slot).clear()

    def next_slot(self, position: int) -> int:
        """Return the slot for a key's next new element."""
        return self._next_slots()[position].as_py() or 0

    def stored(self, position: int) -> StoredElements:
        """Return the stored elements of a key."""
        if self._touched is None:
            raise RuntimeError("a list or map handle is valid only in the call that received it")
        if self._elements is None:
            self._elements = self._touched.elements(self.name)
        block = position // _KEYS_AT_ONCE * _KEYS_AT_ONCE
        if self._block is None or self._block[0] != block:
            self._block = self._read_block(self._elements, block)
        _, starts, block_rows = self._block
        start, stop = int(starts[position - block]), int(starts[position - block + 1])
        return StoredElements(
            block_rows.slots[start:stop],
            block_rows.values[start:stop],
            block_rows.keys[start:stop],
            block_rows.stamps[start:stop],
        )

    def _read_block(self, elements: Elements, block: int) -> tuple[int, np.ndarray[Any, Any], StoredElements]:
        starts = elements.starts[block : block + _KEYS_AT_ONCE + 1]
        rows = elements.rows.slice(int(starts[0]), int(starts[-1] - starts[0]))
        stamps: list[int] = []
        if self.rule is not None:
            stamps = values_of(whole(rows.column("t")).fill_null(self.rule.origin))
        return (
            block,
            starts - starts[0],
            StoredElements(
                values_of(whole(rows.column("slot"))),
                values_of(whole(rows.column("v"))),
                values_of(whole(rows.column("k"))) if self.state.key_type is not None else [],
                stamps,
            ),
        )

    def _next_slots(self) -> pa.Array:
        if self._slots is None:
            if self._touched is None:
                raise RuntimeError("a list or map handle is valid only in the call that received it")
            self._slots = whole(self._touched.stored(f"{SLOT_PREFIX}{self.name}"))
        return self._slots

    def _make(self, state: Any) -> Handle:
        handle = self._made[state._at] = self._handle(state._at)
        setattr(state, self.slot, handle)
        return handle


class ListCells(ElementCells[ListState]):
    """One list state of all keys of a pass."""

    base = ListState

    def write(self, handle: ListState, position: int, written: Written) -> dict[int, int | None]:
        """Collect the writes of a handle."""
        if handle.untouched:
            return {}
        for slot in handle.dead:
            written.add(position, slot, None, None, None, True)
        if handle.rewritten:
            for slot, value, stamp in zip(handle.slots, handle.kept(), handle.stamps, strict=True):
                written.add(position, slot, None, value, stamp)
        count = len(handle.fresh)
        if not count:
            return {position: None} if handle.is_empty else {}
        slot = self.next_slot(position)
        written.position += [position] * count
        written.slot += range(slot, slot + count)
        written.dead += [False] * count
        written.k += [None] * count
        written.v += handle.fresh
        written.t += handle.fresh_stamps if self.rule is not None else [None] * count
        return {position: slot + count}


class MapCells(ElementCells[MapState]):
    """One map state of all keys of a pass."""

    base = MapState
    instead = "state.{}[key] = value, or clear() and update({{…}})"

    def write(self, handle: MapState, position: int, written: Written) -> dict[int, int | None]:
        """Collect the writes of a handle."""
        if not handle.written and not handle.dead:
            return {}
        for slot, key in handle.dead:
            written.add(position, slot, key, None, None, True)
        first = following = self.next_slot(position)
        for key, value, known, stamp in handle.writes():
            slot = following if known is None else known
            following += known is None
            written.add(position, slot, key, value, stamp)
        if handle.is_empty:
            return {position: None}
        return {position: following} if following != first else {}


def key_reader(kind: Any) -> Callable[[Any], Any] | None:
    """Return the function that normalizes a map's key to its stored value, or None if no change is needed.

    NaN equals NaN, -0.0 becomes 0.0, a float has 32 bits, and a time is in UTC: two times that Python treats
    as different because of a clock change may be the same key.
    """
    if kind is None:
        return None
    if kinds.is_floating(kind):
        nan, rounds = float("nan"), kinds.is_float32(kind)

        def as_stored(key: Any) -> Any:
            if not isinstance(key, float):
                return key
            if key != key:  # noqa: PLR0124 - only NaN differs from itself
                return nan
            return (ctypes.c_float(key).value if rounds else key) + 0.0

        return as_stored
    if kinds.is_timestamp(kind) and kind.tz is not None:
        utc = dt.timezone.utc

        def in_utc(key: Any) -> Any:
            if not isinstance(key, dt.datetime) or key.tzinfo is utc:
                return key
            return key.replace(tzinfo=utc) if key.tzinfo is None else key.astimezone(utc)

        return in_utc
    return None


class StateObject:
    """The states of one key as attributes; valid until the handler returns."""

    __slots__ = ("_at",)
    _at: int


def cells_of(state: State, clocks: Clocks) -> Cells:
    """Return the cells of one state."""
    rule = rule_of(state, clocks)
    if state.kind is StateKind.LIST:
        return ListCells(state, rule)
    if state.kind is StateKind.MAP:
        return MapCells(state, rule)
    if state.kind is not StateKind.VALUE:
        return Accumulators(state, rule)
    if freezer(state.type) is None:
        if rule is None:
            return PlainValues(state, rule)
        if not rule.event:
            return TimedValues(state, rule)
    return PropertyValues(state, rule)


def state_class(processor: str, cells: Sequence[Cells]) -> type[StateObject]:
    """Return a new class of state objects for a processor.

    Reads of slots are fast. Reading an empty slot, of an unset value or an unread list, calls `__getattr__`,
    which is slower but happens once.
    """
    names = ", ".join(cell.name for cell in cells) or "none"
    fills: dict[str, Callable[[Any], Any]] = {
        slot: cell.fill for cell in cells if cell.fill is not None for slot in cell.slots
    }
    own = [cell for cell in cells if cell.name != SETTLED]
    clears = {cell.name: cell.clear for cell in cells}

    def __getattr__(self: Any, name: str) -> Any:  # noqa: N807 - it becomes a method
        fill = fills.get(name)
        if fill is None:
            raise AttributeError(f"unknown state {name!r} of {processor}; expected {names}")
        return fill(self)

    def __delattr__(self: Any, name: str) -> None:  # noqa: N807 - as above
        if name not in clears:
            raise AttributeError(f"unknown state {name!r} of {processor}; expected {names}")
        clears[name](self)

    def clear(self: Any) -> None:
        """Clear all states of the key; its timers remain."""
        for cell in own:
            cell.clear(self)

    fields: dict[str, Any] = {"__slots__": tuple(slot for cell in cells for slot in cell.slots)}
    for cell in cells:
        fields |= cell.attributes()
    fields |= {"__getattr__": __getattr__, "__delattr__": __delattr__, "clear": clear}
    made: type[StateObject] = type(f"{processor}State", (StateObject,), fields)
    for cell in cells:
        cell.bind(made)
    return made
