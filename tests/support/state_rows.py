"""Every row of a checkpoint's state, with its key and value as values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from holdfast.checkpoints.state.rows import state_chunks
from holdfast.checkpoints.state.states import StateCodec, StateName
from holdfast.storage.port import Storage


@dataclass(frozen=True, slots=True)
class StateRow:
    """One key of one state: its row, and the rows of its value."""

    codec: StateCodec
    partition: int
    key_row: bytes
    value_rows: tuple[bytes, ...]
    is_list: bool

    @property
    def state(self) -> StateName:
        return self.codec.name

    @property
    def key(self) -> Any:
        return self.codec.key_values(self.key_row)

    @property
    def value(self) -> Any:
        values = [self.codec.value_values(row) for row in self.value_rows]
        return values if self.is_list else values[0]


def state_rows(
    storage: Storage, batch_id: int | None = None, *, operator_id: int | None = None
) -> Iterator[StateRow]:
    for codec, partition, pairs in state_chunks(storage, batch_id, operator_id=operator_id):
        for key, value in pairs:
            yield StateRow(codec, partition, codec.key_row(key), *codec.values.rows(value, codec.where))
