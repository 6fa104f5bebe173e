"""Compare what two runs have kept: each state's rows, whatever partition they are in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from holdfast.checkpoints.contents import StateContent, contents
from holdfast.checkpoints.states import StateName, operator_states
from holdfast.storage.port import Storage

Content = dict[StateName, StateContent]
Schemas = dict[StateName, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class StateVerdict:
    """One state in both.

    Attributes:
        state: The state.
        original_rows: Its keys in the original; None where the original has no such state.
        new_rows: Its keys in the new code's; None likewise.
        same_schema: Whether keys and values have the same columns.
        equal: Whether all keys and values are the same.
    """

    state: StateName
    original_rows: int | None
    new_rows: int | None
    same_schema: bool
    equal: bool

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "operator_id": self.state.operator_id,
            "operator": self.state.operator,
            "store": self.state.store,
            "state": self.state.label,
            "original_rows": self.original_rows,
            "new_rows": self.new_rows,
            "same_schema": self.same_schema,
            "equal": self.equal,
        }


@dataclass(frozen=True, slots=True)
class States:
    """The verdict on the final state."""

    states: tuple[StateVerdict, ...]

    @property
    def equal(self) -> bool:
        """Whether every state is the same."""
        return all(each.equal for each in self.states)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"equal": self.equal, "states": [each.as_dict() for each in self.states]}

    def lines(self) -> Iterator[str]:
        """What a person reads."""
        if self.equal:
            rows = sum(each.original_rows or 0 for each in self.states if not each.state.internal)
            yield f"final state equal: {rows:,} keys" if self.states else "neither keeps state"
            return
        yield "final state different:"
        for each in self.states:
            if not each.equal:
                yield f"  operator {each.state.operator_id}, state {each.state.label}: {_difference(each)}"


def compare_states(original: Storage, new: Storage, batch_id: int) -> States:
    """Compare the state of two checkpoints at a batch that both have committed.

    Raises:
        Unsupported: The state is of a kind that cannot be read from files.
        Corrupt: A file is damaged.
    """
    one, other = _contents(original, batch_id), _contents(new, batch_id)
    schemas, others = _schemas(original, batch_id), _schemas(new, batch_id)
    found = []
    for name in sorted({*one, *other}):
        here, there = one.get(name), other.get(name)
        same_schema = schemas.get(name) == others.get(name)
        found.append(
            StateVerdict(
                name,
                None if here is None else here.rows,
                None if there is None else there.rows,
                same_schema,
                here is not None and there is not None and same_schema and here.digest == there.digest,
            )
        )
    return States(tuple(found))


def _contents(storage: Storage, batch_id: int) -> Content:
    return {each.state: each for each in contents(storage, batch_id)}


def _schemas(storage: Storage, batch_id: int) -> Schemas:
    return {
        codec.name: (codec.schema.key_schema, codec.schema.value_schema)
        for operator in operator_states(storage, batch_id)
        for codec in operator.known()
        if codec.schema is not None
    }


def _difference(verdict: StateVerdict) -> str:
    if verdict.original_rows is None:
        return f"the original has none; {verdict.new_rows:,} keys in the new code's"
    if verdict.new_rows is None:
        return f"the new code has none; {verdict.original_rows:,} keys in the original's"
    if not verdict.same_schema:
        return "its keys or values have other columns"
    return f"{verdict.original_rows:,} keys in the original's, {verdict.new_rows:,} in the new code's"
