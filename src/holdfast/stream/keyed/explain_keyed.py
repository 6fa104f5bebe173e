"""The description of a processor's state and its cost, without running it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.config.checks import whole
from holdfast.config.units import exact_duration
from holdfast.json_shapes import JsonShape, in_json, json_as
from holdfast.worker.declarations.processor import ProcessorDefinition, definition_of, stream_names
from holdfast.worker.declarations.state_descriptors import SETTLED, State, StateKind, Ttl, ufunc_of
from holdfast.worker.declarations.types import (
    ROW_BYTES,
    TIMER_BYTES,
    Assumptions,
    parse_schema,
    state_bytes,
    type_text,
    value_bytes,
    varies,
)

_HEADINGS: Final = ("state", "kind", "schema", "bytes per key", "TTL")
_COSTS: Final = {
    StateKind.LIST: "an append writes one row and reads none; reading, len() and bool() load all elements"
    " of the batch's keys",
    StateKind.MAP: "the first access loads all entries of the batch's keys; a write is one row per entry",
    StateKind.AGGREGATING: "one cell of the key's row; an add calls the aggregate once, and the result is"
    " computed at each get",
    StateKind.VALUE: "one cell of the key's row, which the batch loads anyway",
}


def _by_name(handlers: tuple[tuple[str, str], ...]) -> dict[str, str]:
    return dict(handlers)


@dataclass(frozen=True, slots=True)
class StateExplanation(JsonShape):
    """The contents, TTL, size and access cost of one declared state.

    Attributes:
        name: The name of the state.
        kind: The kind of state, for example a value, a list or a map.
        schema: The type of the state's values.
        bytes_per_key: The size per key in bytes.
        exact: True if the size is exact, false if it is estimated.
        ttl: The TTL of the state's values, as text.
        cost: The cost of an access, as text.
    """

    name: str
    kind: str
    schema: str
    bytes_per_key: int
    exact: bool
    ttl: str
    cost: str


@dataclass(frozen=True, slots=True)
class ProcessorExplanation(JsonShape):
    """The description of a processor's state; `str()` returns it as text, `as_dict()` as values for JSON.

    Attributes:
        name: The name of the processor's class.
        kind: The unit of a handler call: "event", "key" or "table".
        handlers: The handlers, each with a description of when it is called.
        states: The states in the order of their declaration.
        timers: The cost of timers, or "none".
        key_bytes: The estimated size of a key without its states, in bytes.
        assumptions: The assumptions behind the estimates, as text.

    Example:
        class Visits(hf.Keyed):
            visits = hf.value(int, default=0)

            def on_event(self, event, state, ctx):
                state.visits += 1


        explanation: hf.ProcessorExplanation = hf.explain(Visits(), key="customer string")
        assert [state.name for state in explanation.states] == ["visits"]
    """

    name: str
    kind: str
    handlers: tuple[tuple[str, str], ...] = field(metadata=json_as(convert=_by_name))
    states: tuple[StateExplanation, ...]
    timers: str
    key_bytes: int
    assumptions: str

    @property
    @in_json
    def bytes_per_key(self) -> int:
        """Return the estimated size of a key with all of its states, in bytes."""
        return self.key_bytes + sum(state.bytes_per_key for state in self.states)

    def __str__(self) -> str:
        rows = [_HEADINGS] + [
            (
                state.name,
                state.kind,
                state.schema,
                f"{'' if state.exact else '~'}{state.bytes_per_key}",
                state.ttl,
            )
            for state in self.states
        ]
        table = _aligned(rows) if self.states else ["no states"]
        handlers = [f"  {name}: {when}" for name, when in self.handlers]
        return "\n".join(
            [
                self.name,
                *handlers,
                "",
                *table,
                "",
                *(f"{state.name}: {state.cost}" for state in self.states),
                f"bytes: about {self.bytes_per_key} per key, {self.key_bytes} of them for the key itself",
                f"timers: {self.timers}",
                f"assumed: {self.assumptions}",
            ]
        )


def explain(
    processor: Any,
    *,
    key: str = "key string",
    text_bytes: int = 16,
    elements: int = 10,
    nested: int = 4,
) -> ProcessorExplanation:
    """Describe a processor's state: its contents and size per key, and the cost of each access.

    The class is inspected and nothing is started. Sizes are those of Arrow columns, before compression and
    without copies in checkpoints. The metrics of a running job have measured sizes.

    Args:
        processor: An instance of a subclass of `hf.Keyed` or `hf.KeyedTable`.
        key: The key columns, for example "customer string, shop int".
        text_bytes: The assumed length of a string or binary, in bytes.
        elements: The assumed number of elements per key in each list and map state.
        nested: The assumed number of elements in an array or map inside a value.

    Raises:
        Invalid: The class has an error that would prevent a job from starting.

    Example:
        class Visits(hf.Keyed):
            visits = hf.value(int, default=0)
            drinks = hf.map("string", "long", ttl="30 days")

            def on_event(self, event, state, ctx):
                state.visits += 1
                state.drinks[event.drink] = state.drinks.get(event.drink, 0) + 1


        explanation = hf.explain(Visits(), key="customer string")
        assert [state.kind for state in explanation.states] == ["value", "map"]
        assert explanation.bytes_per_key > explanation.key_bytes
        print(explanation)
    """
    for name, number in (("text_bytes", text_bytes), ("elements", elements), ("nested", nested)):
        whole(number, name, least=0)
    assumed = Assumptions(text_bytes, elements, nested)
    streams = stream_names(processor)
    definition = definition_of(processor, streams if len(streams) > 1 else ("events",))
    columns = parse_schema(key)
    timer_bytes = TIMER_BYTES if definition.has_timers else 0
    return ProcessorExplanation(
        definition.name,
        definition.kind,
        _handlers(definition),
        tuple(_explained(state, assumed) for state in definition.states if state.name != SETTLED),
        _timers(definition),
        ROW_BYTES + sum(value_bytes(column.type, assumed) for column in columns) + timer_bytes,
        f"a key of {', '.join(type_text(column.type) for column in columns)}; {text_bytes} bytes per string "
        f"or binary, {elements} elements per list or map state, {nested} per array or map inside a value",
    )


def ttl_words(ttl: Ttl | None) -> str:
    """Return a state's TTL as text."""
    if ttl is None:
        return "kept for ever"
    since = "write" if ttl.update == "create_and_write" else "write or read"
    clock = "processing time" if ttl.clock == "processing" else "event time"
    words = [f"{exact_duration(ttl.duration_ms)} after the last {since}, in {clock}"]
    if ttl.visibility == "return_if_not_cleaned_up":
        words.append("an expired value may be returned one last time")
    if ttl.age_from != "restore":
        words.append(f"values written before the TTL was declared count from {ttl.age_from} ms")
    if ttl.on_disable == "drop_expired":
        words.append("expired values are dropped when the TTL is removed")
    return "; ".join(words)


def _explained(state: State, assumed: Assumptions) -> StateExplanation:
    exact = not state.has_elements and not varies(state.type)
    return StateExplanation(
        state.name,
        state.kind.value,
        _schema(state),
        state_bytes(state, assumed),
        exact,
        ttl_words(state.ttl),
        _cost(state),
    )


def _schema(state: State) -> str:
    if state.key_type is not None:
        return f"{type_text(state.key_type)} to {type_text(state.type)}"
    return type_text(state.type)


def _cost(state: State) -> str:
    if state.kind in _COSTS:
        cost = _COSTS[state.kind]
    elif ufunc_of(state.function) is None:
        cost = "one cell of the key's row; an add calls the function once"
    else:
        cost = "one cell of the key's row; a table of adds is merged as whole arrays"
    if state.ttl is not None and state.ttl.update == "read_and_write":
        cost += "; a read also writes a new timestamp"
    return cost


def _handlers(definition: ProcessorDefinition) -> tuple[tuple[str, str], ...]:
    whens = {
        "event": "for each event",
        "key": "for each key with events, once per batch",
        "table": "for all events of a partition's batch",
    }
    pairs = zip(definition.handlers, definition.streams, strict=True)
    several = len(definition.streams) > 1
    handlers = [
        (name, whens[definition.kind] + (f" of the stream {stream}" if several else ""))
        for name, stream in pairs
    ]
    if definition.has_timers:
        table = definition.kind == "table"
        handlers.append(("on_timers" if table else "on_timer", "for due timers, before the events"))
    if definition.combines:
        handlers.append(("combine", "for part of a batch, before the shuffle"))
    return tuple(handlers)


def _timers(definition: ProcessorDefinition) -> str:
    if not definition.has_timers:
        return "none"
    return f"about {TIMER_BYTES} bytes per key with a timer; setting or moving one writes a cell of its row"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return [line.rstrip() for line in lines]
