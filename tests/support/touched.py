"""State in plain Python dicts behind the interface that a runner sees: what a test starts and ends with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.worker.declarations.state_descriptors import State
from holdfast.worker.interface import Elements, Outcome

Row = dict[str, Any]


class Memory:
    """What is stored for keys, and how a pass sees and changes it.

    Attributes:
        rows: Per key the cells of the row table that are not null.
        elements: Per list or map, per key, per slot the cells of the element.
    """

    def __init__(self, states: Sequence[State], keys: pa.Schema) -> None:
        self.states = {state.name: state for state in states}
        self.schema = keys
        self.rows: dict[tuple[Any, ...], Row] = {}
        self.elements: dict[str, dict[tuple[Any, ...], dict[int, Row]]] = {}
        self.loads: list[str] = []

    def touch(self, keys: Sequence[tuple[Any, ...]]) -> InMemoryTouched:
        """A pass over these keys, in this order."""
        return InMemoryTouched(self, keys)

    def keep(self, touched: InMemoryTouched, outcome: Outcome) -> None:
        """Take in what a pass changed."""
        for name, column in outcome.columns.items():
            assert len(column) == touched.size, name
            assert column.type == self.type_of(name), (name, column.type)
            for key, value in zip(touched.order, column.to_pylist(), strict=True):
                row = self.rows.setdefault(key, {})
                row.pop(name, None)
                if value is not None:
                    row[name] = value
        for name, table in outcome.elements.items():
            self._keep_elements(touched, name, table)

    def type_of(self, column: str) -> pa.DataType:
        """The type of a column of the row table."""
        if column.startswith("s:"):
            return self.states[column[2:]].type
        return pa.string() if column == "timers" else pa.int64()

    def value(self, key: tuple[Any, ...], column: str) -> Any:
        """A stored cell of the row table, or None."""
        return self.rows.get(key, {}).get(column)

    def list_of(self, key: tuple[Any, ...], state: str) -> list[Any]:
        """The stored elements of a list, in slot order."""
        return [row["v"] for _, row in sorted(self.elements.get(state, {}).get(key, {}).items())]

    def map_of(self, key: tuple[Any, ...], state: str) -> dict[Any, Any]:
        """The stored entries of a map, in slot order."""
        found = self.elements.get(state, {}).get(key, {})
        return {row["k"]: row["v"] for _, row in sorted(found.items())}

    def slots(self, key: tuple[Any, ...], state: str) -> list[int]:
        """The slots in use."""
        return sorted(self.elements.get(state, {}).get(key, {}))

    def stamps(self, key: tuple[Any, ...], state: str) -> list[int]:
        """The stamps of a list's or map's elements, in slot order."""
        return [row["t"] for _, row in sorted(self.elements.get(state, {}).get(key, {}).items())]

    def _keep_elements(self, touched: InMemoryTouched, name: str, table: pa.Table) -> None:
        state = self.states[name]
        expected = ["position", "slot", "dead"]
        expected += ["k"] * (state.key_type is not None) + ["v"] + ["t"] * (state.ttl is not None)
        assert table.column_names == expected
        assert table.schema.field("v").type == state.type
        seen = set()
        for row in table.to_pylist():
            key, slot, dead = touched.order[row.pop("position")], row.pop("slot"), row.pop("dead")
            assert (key, slot) not in seen, f"slot {slot} of {key} is written twice"
            seen.add((key, slot))
            stored = self.elements.setdefault(name, {}).setdefault(key, {})
            if dead:
                del stored[slot]
            else:
                stored[slot] = row


class InMemoryTouched:
    """The keys of one pass over a `Memory`."""

    def __init__(self, memory: Memory, keys: Sequence[tuple[Any, ...]]) -> None:
        self.memory = memory
        self.order = list(keys)

    @property
    def size(self) -> int:
        return len(self.order)

    @property
    def keys(self) -> pa.Table:
        schema = self.memory.schema
        columns = zip(*self.order, strict=True) if self.order else [()] * len(schema)
        return pa.table(
            [pa.array(list(each), f.type) for each, f in zip(columns, schema, strict=True)], schema
        )

    def stored(self, column: str) -> pa.Array:
        values = [self.memory.value(key, column) for key in self.order]
        return pa.array(values, self.memory.type_of(column))

    def elements(self, state: str) -> Elements:
        self.memory.loads.append(state)
        declared = self.memory.states[state]
        found = self.memory.elements.get(state, {})
        per_key = [sorted(found.get(key, {}).items()) for key in self.order]
        starts = np.concatenate([[0], np.cumsum([len(each) for each in per_key])]).astype(np.int64)
        rows = [{"slot": slot, **row} for each in per_key for slot, row in each]
        fields = [("slot", pa.int64())]
        fields += [("k", declared.key_type)] if declared.key_type is not None else []
        fields += [("v", declared.type)] + ([("t", pa.int64())] if declared.ttl is not None else [])
        return Elements(starts, pa.Table.from_pylist(rows, schema=pa.schema(fields)))
