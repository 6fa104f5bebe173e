"""The class of the objects that handlers get as `state`: made for each processor, an object a key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.worker.declarations.state_descriptors import SETTLED, Kind, State
from holdfast.worker.runtime.event_rows import freezer
from holdfast.worker.runtime.row_state.cells import Cells, PlainValues, TimedValues
from holdfast.worker.runtime.row_state.element_cells import ListCells, MapCells
from holdfast.worker.runtime.row_state.held_cells import Accumulators, PropertyValues
from holdfast.worker.runtime.ttl import Clocks, rule_of


class StateObject:
    """The states of one key as attributes; good until the handler returns."""

    __slots__ = ("_at",)
    _at: int


def cells_of(state: State, clocks: Clocks) -> Cells:
    """Make the cells of one state."""
    rule = rule_of(state, clocks)
    if state.kind is Kind.LIST:
        return ListCells(state, rule)
    if state.kind is Kind.MAP:
        return MapCells(state, rule)
    if state.kind is not Kind.VALUE:
        return Accumulators(state, rule)
    if freezer(state.type) is None:
        if rule is None:
            return PlainValues(state, rule)
        if not rule.event:
            return TimedValues(state, rule)
    return PropertyValues(state, rule)


def state_class(processor: str, cells: Sequence[Cells]) -> type[StateObject]:
    """Make the class of state objects of a processor.

    What is read all the time is a slot. An empty slot, be it a value that is unset or a list that was not
    asked for yet, is read through `__getattr__`, which costs more but happens once.
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
            raise AttributeError(f"{processor} has no state {name!r}; it has {names}")
        return fill(self)

    def __delattr__(self: Any, name: str) -> None:  # noqa: N807 - as above
        if name not in clears:
            raise AttributeError(f"{processor} has no state {name!r}; it has {names}")
        clears[name](self)

    def clear(self: Any) -> None:
        """Clear all states of the key; timers stay."""
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
