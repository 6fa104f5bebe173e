"""Counts and hashes of a checkpoint's rows, and the balance of its partitions."""

from __future__ import annotations

import hashlib
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from holdfast.checkpoints.checkpoint import NAMES, CheckpointReport, ProgressCallback, Store
from holdfast.checkpoints.problems import taking_rows_apart
from holdfast.checkpoints.state.key_partition import PartitionCheck
from holdfast.checkpoints.state.rocksdb import Pairs
from holdfast.checkpoints.state.rows import state_chunks, store_chunks
from holdfast.checkpoints.state.states import OperatorStates, StateCodec, StateName, operator_states
from holdfast.formats.operators import OperatorName, state_name
from holdfast.json_shapes import JsonShape, in_json, json_as, json_spread
from holdfast.layout import DEFAULT_STORE, StoreId
from holdfast.storage.port import Storage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_LANES: Final = 16
_MODULUS: Final = 1 << 512


@dataclass(frozen=True, slots=True)
class StateContent(JsonShape):
    """The content of one state.

    Attributes:
        state: The identity of the state.
        rows: The number of keys.
        digest: A hash of all rows, which is independent of the order of rows, their partitions, the numbers
            of column families, checksums and the provider: it changes if and only if a key or a value
            changes.
        size_bytes: The bytes of keys and values.

    Example:
        report = hf.savepoints.rescale("savepoints@daily", "checkpoints/visits-4", partitions=4)
        states: tuple[hf.StateContent, ...] = report.states
        assert [content.rows for content in states] == [10]
        assert report.before == report.after  # the same rows and the same digest
    """

    state: StateName = field(metadata=json_spread())
    rows: int
    digest: str
    size_bytes: int


def contents(
    storage: Storage,
    batch_id: int | None = None,
    *,
    check_partitions: bool = False,
    tell: ProgressCallback | None = None,
) -> tuple[StateContent, ...]:
    """Return the exact content of each state at a committed batch, ascending by operator and name.

    States without rows are included if a schema names them.

    Cost: reads and hashes every row, which takes about 2 microseconds per row on one core; the memory is at
    most that of one partition's changes since its base.

    Args:
        storage: The checkpoint, or a savepoint's view.
        batch_id: A committed batch whose files are kept; the newest by default.
        check_partitions: Whether to check that every key is in the partition that Spark's hash determines.
        tell: The progress callback, called with stores done, total stores, and the current step.

    Raises:
        NotFound: The batch is not committed, or a file that the batch needs is missing.
        Corrupt: A file or a row is damaged, or a key is in the wrong partition.
        Unsupported: The state's format cannot be read.
        Unavailable: The storage does not answer.
    """
    sums: dict[StateName, ContentSum] = {}
    operators = operator_states(storage, batch_id)
    check = PartitionCheck(operators, storage.uri) if check_partitions else None
    for codec, partition, pairs in state_chunks(storage, batch_id, tell=tell):
        if check is not None:
            check.require(codec, partition, [key for key, _ in pairs])
        sums.setdefault(codec.name, ContentSum()).add(*bare_rows(codec, pairs))
    return state_contents(operators, sums)


def store_sums(
    storage: Storage,
    operator: OperatorStates,
    store: StoreId,
    step: Callable[[], None] = lambda: None,
    *,
    check: PartitionCheck | None = None,
) -> dict[StateName, ContentSum]:
    """Return the sums of the rows of one store of one partition, for each state that has rows.

    Args:
        storage: The checkpoint, or a savepoint's view.
        operator: The store's operator.
        store: The identity of the store.
        step: A function that is called after every few thousand rows.
        check: The check that every key is in the partition that Spark's hash determines; None for no check.

    Raises:
        NotFound: A file is missing.
        Corrupt: A file or a row is damaged, or a key is in the wrong partition.
        Unsupported: The state's format cannot be read.
    """
    sums: dict[StateName, ContentSum] = {}
    for codec, pairs in store_chunks(storage, operator, store):
        if check is not None:
            check.require(codec, store.partition, [key for key, _ in pairs])
        sums.setdefault(codec.name, ContentSum()).add(*bare_rows(codec, pairs))
        step()
    return sums


def state_contents(
    operators: Iterable[OperatorStates], sums: Mapping[StateName, ContentSum]
) -> tuple[StateContent, ...]:
    """Return the content of each state, by operator and name, including declared states without rows.

    Args:
        operators: The operators, whose schemas name states.
        sums: The sums of those states that have rows.
    """
    sums = {
        **{codec.name: ContentSum() for operator in operators for codec in operator.declared_codecs()},
        **sums,
    }
    named = {(name.operator_id, name.store) for name in sums if name.family != DEFAULT_STORE}
    return tuple(
        StateContent(name, found.rows, found.digest(), found.size_bytes)
        for name, found in sorted(sums.items())
        # A store with families also has an unused default family.
        if found.rows or name.family != DEFAULT_STORE or (name.operator_id, name.store) not in named
    )


def bare_rows(codec: StateCodec, pairs: Pairs) -> tuple[Sequence[bytes], Sequence[bytes]]:
    """Return the keys and values of rows without their framing, as `ValueForm.bare_all` does.

    Raises:
        Corrupt: A key or a value is damaged.
    """
    values = bare_values(codec, pairs)
    skip = codec.plain_keys
    if skip is None:
        return [codec.key_row(key) for key, _ in pairs], values
    return [key[skip:] for key, _ in pairs], values


def bare_bytes(codec: StateCodec, pairs: Pairs) -> int:
    """Return the total size of the keys and values.

    Raises:
        Corrupt: A key or a value is damaged.
    """
    skip = codec.plain_keys
    values = [value for _, value in pairs]
    if skip is None or not codec.values.all_single(values):
        keys, bare = bare_rows(codec, pairs)
        return sum(map(len, keys)) + sum(map(len, bare))
    around = skip + (codec.values.before_row or 0)
    return sum([len(key) for key, _ in pairs]) + sum(map(len, values)) - around * len(pairs)


def bare_values(codec: StateCodec, pairs: Pairs) -> list[bytes]:
    """Return the values without their framing.

    Raises:
        Corrupt: A value is damaged.
    """
    with taking_rows_apart(codec.where):
        return codec.values.bare_all([value for _, value in pairs])


class ContentSum:
    """A sum of row hashes.

    Each row has a hash of 512 bits, of the key with its length and the value. The hashes are added modulo 2
    to the power of 512, so the order of rows does not matter, a row that exists twice counts twice, and the
    probability that two different contents have the same sum by chance is negligible.
    """

    __slots__ = ("_sum", "rows", "size_bytes")

    def __init__(self) -> None:
        self.rows = 0
        self.size_bytes = 0
        self._sum = 0

    def add(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Add rows. Cost: about a microsecond per row."""
        import numpy as np

        digests = row_digests(keys, values)
        lanes: NDArray[np.uint32] = np.frombuffer(b"".join(digests), dtype="<u4").reshape(-1, _LANES)
        totals = lanes.sum(axis=0, dtype=np.uint64).tolist()
        self._sum = (self._sum + sum(total << (32 * lane) for lane, total in enumerate(totals))) % _MODULUS
        self.rows += len(digests)
        self.size_bytes += sum(map(len, keys)) + sum(map(len, values))

    @classmethod
    def restored(cls, rows: int, total: str, size_bytes: int) -> ContentSum:
        """Return a sum that was computed earlier, from its `total`."""
        content = cls()
        content.rows, content.size_bytes, content._sum = rows, size_bytes, int(total, 16)
        return content

    @property
    def total(self) -> str:
        """The sum, as 128 hexadecimal digits."""
        return f"{self._sum:0128x}"

    def merge(self, other: ContentSum) -> None:
        """Add the rows of a different sum."""
        self.rows += other.rows
        self.size_bytes += other.size_bytes
        self._sum = (self._sum + other._sum) % _MODULUS

    def digest(self) -> str:
        """Return the hash of the added rows: 64 hexadecimal digits."""
        return hashlib.sha256(self._sum.to_bytes(64, "little") + struct.pack("<Q", self.rows)).hexdigest()


def row_digests(keys: Sequence[bytes], values: Sequence[bytes]) -> list[bytes]:
    """Return the hash of each row: 64 bytes."""
    make: Callable[[bytes], Any] = hashlib.blake2b
    return [
        make(len(key).to_bytes(4, "little") + key + value).digest()
        for key, value in zip(keys, values, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class PartitionSize:
    """The state of one partition of one store.

    Attributes:
        partition: The number of the partition.
        bytes: The size of the newest base and of all later changes in bytes; a value written again counts
            twice.
        rows: The number of rows in the base; None unless RocksDB counts them.
    """

    partition: int
    bytes: int
    rows: int | None


@dataclass(frozen=True, slots=True)
class StoreShares(JsonShape):
    """A store of a stateful operator, with its distribution over partitions.

    Attributes:
        operator: The operator's number.
        operator_name: Spark's name for the operator.
        store: The store's name; `default` if the operator has only one.
        partitions: All partitions, in order.
        named: The operator's names.
    """

    operator: int = field(metadata=json_as("operator_id"))
    operator_name: str
    store: str
    partitions: tuple[PartitionSize, ...]
    named: OperatorName = field(metadata=json_spread(*NAMES))

    @property
    @in_json
    def state_name(self) -> str:
        """The name of the store's state, or the operator's name if the operator has only one store."""
        return state_name(self.named, self.store)

    @property
    @in_json
    def bytes(self) -> int:
        """The total size of all partitions in bytes."""
        return sum(partition.bytes for partition in self.partitions)

    @property
    @in_json
    def rows(self) -> int | None:
        """The total number of rows in all partitions; None unless all are counted."""
        rows = [partition.rows for partition in self.partitions]
        return None if None in rows else sum(count or 0 for count in rows)

    @property
    def largest(self) -> PartitionSize | None:
        """The partition with the most bytes."""
        return max(self.partitions, key=lambda size: size.bytes, default=None)

    @property
    @in_json
    def largest_share(self) -> float:
        """The share of the largest partition in all bytes."""
        return 0.0 if self.largest is None else self.largest.bytes / max(1, self.bytes)


def shares(checkpoint: CheckpointReport) -> list[StoreShares]:
    """Return the stores of a checkpoint at its newest committed batch, by operator and name."""
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
