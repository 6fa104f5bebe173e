"""Which keys have the most of a state."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.at_rest.read.model import KeySize, NamedState
from holdfast.checkpoints.values import ProgressCallback
from holdfast.formats.rows.plain import plain
from holdfast.json_shapes import JsonShape, in_json_as, json_as, json_spread


@dataclass(frozen=True, slots=True)
class HeavyKey(JsonShape):
    """A key and what it has of a state.

    Attributes:
        key: Its columns.
        rows: Its rows: those of a join that wait, the entries of a map, the sessions.
        size_bytes: Their bytes, as they are stored.
        share: Their part of the bytes of the state.
        partition: The partition that they are in.
    """

    key: Mapping[str, Any] = field(metadata=json_as(convert=plain))
    rows: int
    size_bytes: int
    share: float
    partition: int


@dataclass(frozen=True, slots=True)
class HeavyKeys(JsonShape):
    """The largest keys of a state.

    Attributes:
        state: The state.
        keys: How many keys it has.
        size_bytes: The bytes of them all.
        heaviest: The largest, first the largest of all.
    """

    state: NamedState = field(metadata=json_spread("operator_id"))
    keys: int
    size_bytes: int
    heaviest: tuple[HeavyKey, ...]

    @property
    @in_json_as("state")
    def name(self) -> str:
        """The state, OPERATOR.STATE, or the operator alone where it has one state."""
        return self.state.full_name


def heaviest(state: NamedState, *, most: int = 10, tell: ProgressCallback | None = None) -> HeavyKeys:
    """Find the keys that have the most bytes of a state.

    Cost: every row is read, one or two microseconds each. Where a key has several rows, such as those of a
    join that wait for a partner, all keys are held in memory.

    Args:
        state: The state.
        most: How many keys.
        tell: Called with stores done, stores in all, and what is being done.

    Raises:
        NotFound: A file has gone while it was about to be read.
        Corrupt: A file is damaged.
        Unsupported: The state is of a kind that cannot be read.
    """
    keys = total = 0
    largest: list[tuple[int, int, KeySize]] = []
    for size in state.source.key_sizes(state, tell):
        keys += 1
        total += size.size_bytes
        # What is found first stands before others of its size.
        item = (size.size_bytes, -keys, size)
        if len(largest) < most:
            heapq.heappush(largest, item)
        elif largest and item > largest[0]:
            heapq.heapreplace(largest, item)
    ranked = [size for _, _, size in sorted(largest, reverse=True)]
    return HeavyKeys(state, keys, total, tuple(_heavy_key(size, total) for size in ranked))


def _heavy_key(size: KeySize, total: int) -> HeavyKey:
    return HeavyKey(size.key(), size.rows, size.size_bytes, size.size_bytes / max(total, 1), size.partition)
