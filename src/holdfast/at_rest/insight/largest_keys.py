"""Which keys have the most of a state."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.at_rest.read import keyed_source
from holdfast.at_rest.read.model import NamedOperator, NamedState, StateForm
from holdfast.at_rest.read.state_reader import StateReader, key_of
from holdfast.checkpoints.state.states import StateCodec
from holdfast.checkpoints.values import ProgressCallback
from holdfast.formats.rows.plain import plain
from holdfast.formats.rows.row_forms import KeyKind


@dataclass(frozen=True, slots=True)
class HeavyKey:
    """A key and what it has of a state.

    Attributes:
        key: Its columns.
        rows: Its rows: those of a join that wait, the entries of a map, the sessions.
        size_bytes: Their bytes, as they are stored.
        share: Their part of the bytes of the state.
        partition: The partition that they are in.
    """

    key: Mapping[str, Any]
    rows: int
    size_bytes: int
    share: float
    partition: int

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "key": plain(self.key),
            "rows": self.rows,
            "size_bytes": self.size_bytes,
            "share": self.share,
            "partition": self.partition,
        }


@dataclass(frozen=True, slots=True)
class HeavyKeys:
    """The largest keys of a state.

    Attributes:
        state: The state.
        keys: How many keys it has.
        size_bytes: The bytes of them all.
        heaviest: The largest, first the largest of all.
    """

    state: NamedState
    keys: int
    size_bytes: int
    heaviest: tuple[HeavyKey, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "operator_id": self.state.operator_id,
            "state": self.state.full_name,
            "keys": self.keys,
            "size_bytes": self.size_bytes,
            "heaviest": [each.as_dict() for each in self.heaviest],
        }


@dataclass(slots=True)
class _Weight:
    rows: int
    size_bytes: int
    partition: int
    stored: tuple[StateCodec, bytes] | Mapping[str, Any]


def heaviest(
    reader: StateReader,
    operator: NamedOperator,
    state: NamedState,
    *,
    most: int = 10,
    tell: ProgressCallback | None = None,
) -> HeavyKeys:
    """Find the keys that have the most bytes of a state.

    Cost: every row is read, one or two microseconds each. Where a key has several rows, such as those of a
    join that wait for a partner, all keys are held in memory.

    Args:
        reader: The checkpoint or savepoint at its batch.
        operator: The operator.
        state: One of its states.
        most: How many keys.
        tell: Called with stores done, stores in all, and what is being done.

    Raises:
        NotFound: A file has gone while it was about to be read.
        Corrupt: A file is damaged.
        Unsupported: The state is of a kind that cannot be read.
    """
    keys = total = 0
    largest: list[tuple[int, int, _Weight]] = []
    for weight in _weights(reader, operator, state, tell):
        keys += 1
        total += weight.size_bytes
        # What is found first stands before others of its size.
        item = (weight.size_bytes, -keys, weight)
        if len(largest) < most:
            heapq.heappush(largest, item)
        elif largest and item > largest[0]:
            heapq.heapreplace(largest, item)
    return HeavyKeys(
        state, keys, total, tuple(_key(state, each, total) for _, _, each in sorted(largest, reverse=True))
    )


def sizes(
    reader: StateReader, operator: NamedOperator, state: NamedState, tell: ProgressCallback | None = None
) -> Iterator[int]:
    """The bytes of each key of a state."""
    for weight in _weights(reader, operator, state, tell):
        yield weight.size_bytes


def _weights(
    reader: StateReader, operator: NamedOperator, state: NamedState, tell: ProgressCallback | None
) -> Iterator[_Weight]:
    """What each key has, one after the other."""
    if state.own is None and state.form in (StateForm.VALUE, StateForm.LIST):
        for codec, partition, pairs in reader.chunks(operator, state, tell=tell):
            for key, value in pairs:
                yield _Weight(1, len(key) + len(value), partition, (codec, key))
        return
    found: dict[Any, _Weight] = {}
    rows = _own_rows(state) if state.own is not None else _rows(reader, operator, state, tell)
    for mark, row in rows:
        before = found.get(mark)
        if before is None:
            found[mark] = row
        else:
            before.rows += row.rows
            before.size_bytes += row.size_bytes
    yield from found.values()


def _rows(
    reader: StateReader, operator: NamedOperator, state: NamedState, tell: ProgressCallback | None
) -> Iterator[tuple[Any, _Weight]]:
    """Rows of keys that have several, with something that is one for each key."""
    for codec, partition, pairs in reader.chunks(operator, state, tell=tell):
        prefixed = codec.values.rocksdb and codec.key_form.kind is KeyKind.PREFIX
        for key, value in pairs:
            row = _Weight(1, len(key) + len(value), partition, (codec, key))
            if prefixed:
                yield key[: 4 + int.from_bytes(key[:4], "little")], row
            else:
                yield repr(list(key_of(state, codec, key).values())), row


def _own_rows(state: NamedState) -> Iterator[tuple[Any, _Weight]]:
    for entry in keyed_source.rows(state):
        yield repr(list(entry.key.values())), _Weight(1, entry.size_bytes, entry.partition, entry.key)


def _key(state: NamedState, weight: _Weight, total: int) -> HeavyKey:
    stored = weight.stored
    key = key_of(state, *stored) if isinstance(stored, tuple) else stored
    return HeavyKey(key, weight.rows, weight.size_bytes, weight.size_bytes / max(total, 1), weight.partition)
