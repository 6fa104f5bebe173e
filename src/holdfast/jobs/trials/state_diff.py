"""Compare what two runs have kept: each state key by key, whatever partition its keys are in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from holdfast.checkpoints.state.states import StateName, operator_states
from holdfast.config.units import counted
from holdfast.json_shapes import NOT_IN_JSON, JsonShape, in_json, in_json_as
from holdfast.savepoints.key_diff import DifferingKey, StateDifference
from holdfast.savepoints.key_diff import compare_states as compare_rows
from holdfast.savepoints.view import StateLocation
from holdfast.storage.port import Storage

Schemas = dict[StateName, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class FinalStates(JsonShape):
    """The verdict on the final state.

    Attributes:
        states: Every state that has keys in one of the two, the original first.
        reshaped: The states whose keys or values have other columns in the new code.
    """

    states: tuple[StateDifference, ...] = field(metadata=NOT_IN_JSON)
    reshaped: tuple[StateName, ...] = field(metadata=NOT_IN_JSON)

    @property
    @in_json
    def equal(self) -> bool:
        """Return whether every state has the same columns, keys and values."""
        return not self.reshaped and all(change.same for change in self.states)

    def lines(self) -> Iterator[str]:
        """Return the lines for a person."""
        if self.equal:
            rows = sum(change.first_rows for change in self.states if not change.state.internal)
            yield f"final state equal: {counted(rows, 'key')}"
            return
        yield "final state different:"
        for name in self.reshaped:
            yield f"  {name.shown}: its keys or values have other columns"
        for change in self.states:
            if not change.same and not change.state.internal:
                yield (
                    f"  {change.state.shown}:"
                    f" {counted(change.removed, 'key')} only in the original,"
                    f" {change.added:,} only in the new code, {change.changed:,} with another value"
                )
                yield from (f"    {line}" for sample in change.samples for line in _sample_lines(sample))

    @property
    @in_json_as("states")
    def compared(self) -> list[dict[str, Any]]:
        """Every state as `state diff` shows it, and in `same_schema` whether it has the same columns."""
        return [state.as_dict() | {"same_schema": state.state not in self.reshaped} for state in self.states]


def compare_states(original: Storage, new: Storage, batch_id: int, samples: int) -> FinalStates:
    """Compare the state of two checkpoints at a batch that both have committed.

    Cost: all rows of both are read, and once more where some differ.

    Args:
        original: The checkpoint of the original.
        new: That of the new code.
        batch_id: The batch.
        samples: How many keys of each kind of difference to show, of each state.

    Raises:
        Unsupported: The state is of a kind that cannot be read from files.
        Corrupt: A file is damaged.
    """
    difference = compare_rows(
        StateLocation(original, batch_id, "original"), StateLocation(new, batch_id, "new"), samples=samples
    )
    one, other = _schemas(original, batch_id), _schemas(new, batch_id)
    reshaped = sorted(name for name in one.keys() & other.keys() if one[name] != other[name])
    return FinalStates(difference.states, tuple(reshaped))


def _schemas(storage: Storage, batch_id: int) -> Schemas:
    return {
        codec.name: (codec.schema.key_schema, codec.schema.value_schema)
        for operator in operator_states(storage, batch_id)
        for codec in operator.declared_codecs()
        if codec.schema is not None
    }


def _sample_lines(sample: DifferingKey) -> Iterator[str]:
    """A key and its value in the original, and in the new code."""
    values = sample.as_dict()
    for sign, side, missing in (("-", "first", "added"), ("+", "second", "removed")):
        if sample.change != missing:
            yield f"{sign} {_text(values['key'])}: {_text(values[side])}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
