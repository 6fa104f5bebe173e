"""How even the state of a checkpoint is: the share of each partition of each store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.checkpoints.values import NAMES, Checkpoint, Store
from holdfast.formats.operators import OperatorName, state_name
from holdfast.json_shapes import JsonShape, in_json, json_as, json_spread


@dataclass(frozen=True, slots=True)
class PartitionSize:
    """The state of one partition of one store.

    Attributes:
        partition: Its number.
        bytes: Of its newest base and of all changes since; a value written again since counts twice.
        rows: In the base, where RocksDB counts them.
    """

    partition: int
    bytes: int
    rows: int | None


@dataclass(frozen=True, slots=True)
class StoreShares(JsonShape):
    """One store of one stateful operator.

    Attributes:
        operator: The operator's number.
        operator_name: What Spark calls it.
        store: The store's name; `default` where an operator has one only.
        partitions: All of them, in order.
        named: What the operator is called.
    """

    operator: int = field(metadata=json_as("operator_id", formerly="operator"))
    operator_name: str
    store: str
    partitions: tuple[PartitionSize, ...]
    named: OperatorName = field(metadata=json_spread(*NAMES))

    @property
    @in_json
    def state_name(self) -> str:
        """What people call the state that the store holds: the operator's name where it has one store."""
        return state_name(self.named, self.store)

    @property
    @in_json
    def bytes(self) -> int:
        """All partitions together."""
        return sum(partition.bytes for partition in self.partitions)

    @property
    @in_json
    def rows(self) -> int | None:
        """All partitions together, if each of them says so."""
        rows = [partition.rows for partition in self.partitions]
        return None if None in rows else sum(count or 0 for count in rows)

    @property
    def largest(self) -> PartitionSize | None:
        """The partition with the most bytes."""
        return max(self.partitions, key=lambda size: size.bytes, default=None)

    @property
    @in_json
    def largest_share(self) -> float:
        """Its share of all bytes."""
        return 0.0 if self.largest is None else self.largest.bytes / max(1, self.bytes)


def shares(checkpoint: Checkpoint) -> list[StoreShares]:
    """The stores of a checkpoint at its newest committed batch, by operator and name."""
    found = []
    for operator in checkpoint.operators:
        stores: dict[str, list[Store]] = defaultdict(list)
        for store in operator.stores:
            stores[store.id.name].append(store)
        found += [
            StoreShares(operator.operator_id, operator.name, name, _sizes(stores[name]), operator.named)
            for name in sorted(stores)
        ]
    return found


def _sizes(stores: Sequence[Store]) -> tuple[PartitionSize, ...]:
    ordered = sorted(stores, key=lambda store: store.id.partition)
    return tuple(PartitionSize(store.id.partition, store.size_bytes, store.base_keys) for store in ordered)
