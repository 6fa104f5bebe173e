"""Compare the final states of two runs key by key, independent of partitions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from holdfast.checkpoints.state.states import StateName, operator_states
from holdfast.json_shapes import NOT_IN_JSON, JsonShape, in_json, in_json_as
from holdfast.quantities import counted
from holdfast.savepoints.key_diff import DifferingKey, StateDifference
from holdfast.savepoints.key_diff import compare_states as compare_rows
from holdfast.savepoints.view import StateLocation
from holdfast.storage.port import Storage

Schemas = dict[StateName, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class FinalStates(JsonShape):
    """The verdict on the final state.

    Attributes:
        states: Every state with keys in at least one run, the original's first.
        reshaped: The states whose keys or values have different columns in the new code.
    """

    states: tuple[StateDifference, ...] = field(metadata=NOT_IN_JSON)
    reshaped: tuple[StateName, ...] = field(metadata=NOT_IN_JSON)

    @property
    @in_json
    def equal(self) -> bool:
        """True if every state has the same columns, keys and values."""
        return not self.reshaped and all(change.same for change in self.states)

    def lines(self) -> Iterator[str]:
        """Yield the lines to print."""
        if self.equal:
            rows = sum(change.first_rows for change in self.states if not change.state.internal)
            yield f"final state equal: {counted(rows, 'key')}"
            return
        yield "final state different:"
        for name in self.reshaped:
            yield f"  {name.shown}: its keys or values have different columns"
        for change in self.states:
            if not change.same and not change.state.internal:
                yield (
                    f"  {change.state.shown}:"
                    f" {counted(change.removed, 'key')} only in the original,"
                    f" {change.added:,} only in the new code, {change.changed:,} with a different value"
                )
                yield from (f"    {line}" for sample in change.samples for line in _sample_lines(sample))

    @property
    @in_json_as("states")
    def compared(self) -> list[dict[str, Any]]:
        """Each state as in `state diff`, with `same_schema`: True if it has the same columns."""
        return [state.as_dict() | {"same_schema": state.state not in self.reshaped} for state in self.states]


def compare_states(original: Storage, new: Storage, batch_id: int, samples: int) -> FinalStates:
    """Compare the state of two checkpoints at a batch that both have committed.

    Cost: all rows of both are read, and once more where some differ.

    Args:
        original: The original's checkpoint.
        new: The new code's checkpoint.
        batch_id: The batch.
        samples: The number of keys of each kind of difference to show per state.

    Raises:
        Unsupported: The state cannot be read from files.
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
    """Yield a key with its value in the original and in the new code."""
    values = sample.as_dict()
    for sign, side, missing in (("-", "first", "added"), ("+", "second", "removed")):
        if sample.change != missing:
            yield f"{sign} {_text(values['key'])}: {_text(values[side])}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
