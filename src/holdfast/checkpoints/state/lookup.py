"""The lookup of the rows of one key, at a batch or over all kept batches.

A RocksDB base is queried for the key. Change files, and all files of the memory provider, are decoded only if
their bytes contain those of the key.

Over all kept batches, each file of a store is read once, and only for this key: the base of the oldest batch,
then the changes of each batch. If a batch wrote a base but no change file, as without changelogs, the base is
queried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from holdfast.checkpoints.problems import taking_rows_apart
from holdfast.checkpoints.state.key_partition import partition_of_key, placing_fields
from holdfast.checkpoints.state.rocksdb import Families, Overlay, Pairs, Snapshot, key_of, open_snapshot
from holdfast.checkpoints.state.states import OperatorStates, StateCodec
from holdfast.formats.files.records import StateRecord, records_of
from holdfast.formats.rows.row_forms import KeyKind
from holdfast.formats.rows.spark_types import Atom
from holdfast.formats.rows.unsafe_row import RowCodec
from holdfast.layout import FileKind, StoreFile, StoreId
from holdfast.storage.port import Storage, full

_LONG: Final = Atom("long")


@dataclass(frozen=True, slots=True)
class Sought:
    """The lookup of keys in one state.

    Attributes:
        codec: The state.
        start: The prefix of the keys, as RocksDB stores them; None if no prefix can be searched for, so that
            every key is compared.
        whole: Whether `start` is a complete key and not only a prefix.
        needle: Bytes that every matching key contains.
        holds: A function that returns whether a stored key matches.
    """

    codec: StateCodec
    start: bytes | None
    whole: bool
    needle: bytes
    holds: Callable[[bytes], bool]


@dataclass(frozen=True, slots=True)
class FoundRows:
    """The stored rows of a key in one partition, without the number of their column family."""

    partition: int
    pairs: Pairs


def sought(codec: StateCodec, values: Mapping[str, Any]) -> Sought:
    """Return the lookup of the keys with these values.

    Args:
        codec: The state.
        values: The values of all fields of the key, or of the first `placing_fields` fields.

    Raises:
        Invalid: A value does not have the type of its field.
    """
    whole = len(values) == len(codec.key_type.types)
    plain_key = codec.key_form.kind is KeyKind.ROW
    decoded = Sought(codec, None, False, _mark(codec, values), _decoded(codec, values))
    if not codec.values.rocksdb:
        row = RowCodec(codec.key_type).encode(values) if whole else b""
        return Sought(codec, row, True, row, row.__eq__) if whole else decoded
    if whole and plain_key:
        start = codec.key_codec.start(values) or b""
        return Sought(codec, start, True, start, start.__eq__)
    searched = dict(list(values.items())[: placing_fields(codec)])
    found = None if plain_key else codec.key_codec.start(searched)
    if found is None:
        return decoded
    if whole:
        return Sought(codec, found, False, found, decoded.holds)
    size = len(found) + 8 if codec.key_form.kind is KeyKind.TIME_LAST else None
    return Sought(codec, found, False, found, lambda key: key.startswith(found) and size in (None, len(key)))


def find(
    storage: Storage, operator: OperatorStates, codec: StateCodec, values: Mapping[str, Any]
) -> Iterator[FoundRows]:
    """Yield the rows of a state whose keys have these values, partition by partition.

    Cost: lists a folder, opens a snapshot, and reads the files since; if the key's partition is unknown, does
    so for each partition.

    Args:
        storage: The checkpoint, or a savepoint's view.
        operator: The operator, at its batch.
        codec: A state of the operator.
        values: The values of all fields of the key, or of the first `placing_fields` fields.

    Raises:
        Invalid: A value does not have the type of its field.
        NotFound: A file that the batch needs is missing.
        Corrupt: A file is damaged.
        Unsupported: The state's format cannot be read.
    """
    placing = dict(list(values.items())[: placing_fields(codec)])
    partition = partition_of_key(operator, codec, placing)
    wanted = sought(codec, values)
    for candidate in range(operator.partitions) if partition is None else (partition,):
        pairs = rows_of(storage, operator, candidate, wanted)
        if pairs:
            yield FoundRows(candidate, pairs)


def rows_of(storage: Storage, operator: OperatorStates, partition: int, wanted: Sought) -> Pairs:
    """Return the matching rows of one partition.

    Raises:
        NotFound: A file that the batch needs is missing.
        Corrupt: A file is damaged.
        Unsupported: The state's format cannot be read.
    """
    store = StoreId(operator.operator_id, partition, wanted.codec.name.store)
    return list(rows_in(storage, operator, store, operator.chain(storage, store), wanted).items())


def rows_in(
    storage: Storage,
    operator: OperatorStates,
    store: StoreId,
    chain: Sequence[StoreFile],
    wanted: Sought,
) -> dict[bytes, bytes]:
    """Return the matching rows in the files of a store: a base, and changes in order.

    Raises:
        NotFound: A file is missing.
        Corrupt: A file is damaged.
        Unsupported: The state's format cannot be read.
    """
    with taking_rows_apart(full(storage.uri, store.folder)):
        if any(file.kind in (FileKind.DELTA, FileKind.SNAPSHOT) for file in chain):
            return _in_memory(storage, operator, chain, wanted)
        return _in_rocksdb(storage, operator, chain, wanted)


def changed_by(
    storage: Storage,
    operator: OperatorStates,
    store: StoreId,
    change: StoreFile,
    wanted: Sought,
    before: Mapping[bytes, bytes],
    number: bytes,
) -> dict[bytes, bytes] | None:
    """Return the matching rows after a batch; None if the batch wrote none of them.

    Args:
        storage: The checkpoint.
        operator: The operator.
        store: The store.
        change: The changes that the batch wrote.
        wanted: The lookup.
        before: The matching rows before the batch.
        number: The prefix of the keys of the column family.

    Raises:
        NotFound: The file is missing.
        Corrupt: The file is damaged.
    """
    with taking_rows_apart(full(storage.uri, store.folder)):
        records = _about(storage, operator, change, number, wanted)
        if not records:
            return None
        overlay = Overlay(operator.values)
        overlay.add(records)
        rows = overlay.over([(number + key, value) for key, value in before.items()])
        return {key[len(number) :]: value for key, value in rows}


def _in_rocksdb(
    storage: Storage,
    operator: OperatorStates,
    chain: Sequence[StoreFile],
    wanted: Sought,
) -> dict[bytes, bytes]:
    with ExitStack() as stack:
        whole = bool(chain) and chain[0].kind is FileKind.ZIP
        snapshot = (
            stack.enter_context(open_snapshot(storage, chain[0], operator.values.delimiter))
            if whole
            else None
        )
        metadata = None if snapshot is None else snapshot.metadata
        name = wanted.codec.name
        # Spark writes a snapshot with the batch that creates a family, and records its number there.
        number = Families.of(operator, name.store, metadata).prefixes.get(name.family)
        if number is None:
            return {}  # nothing was ever written to the family
        overlay = Overlay(operator.values)
        for file in chain[1:] if whole else chain:
            overlay.add(_about(storage, operator, file, number, wanted))
        found = overlay.over(_base_rows(snapshot, number, wanted))
        return {key[len(number) :]: value for key, value in found}


def _base_rows(snapshot: Snapshot | None, number: bytes, wanted: Sought) -> Iterator[tuple[bytes, bytes]]:
    if snapshot is None:
        return
    if wanted.start is not None and wanted.whole:
        value = snapshot.get(number + wanted.start)
        if value is not None:
            yield number + wanted.start, value
        return
    for key, value in snapshot.starting_with(number + (wanted.start or b"")):
        if wanted.needle in key and wanted.holds(key[len(number) :]):
            yield key, value


def _about(
    storage: Storage, operator: OperatorStates, file: StoreFile, number: bytes, wanted: Sought
) -> list[StateRecord]:
    """Return the records of matching keys in a file; a file without any is not decoded."""
    stream = operator.stream(storage, file)
    if wanted.needle not in stream:
        return []
    records = []
    for record in records_of(file.kind, stream, file.render()):
        key = key_of(record, operator.values)
        if key.startswith(number) and wanted.needle in key and wanted.holds(key[len(number) :]):
            records.append(record)
    return records


def _in_memory(
    storage: Storage, operator: OperatorStates, chain: Sequence[StoreFile], wanted: Sought
) -> dict[bytes, bytes]:
    """Return the last value of each key, read from the newest file back to the base."""
    last: dict[bytes, bytes | None] = {}
    for file in reversed(chain):
        records = _about(storage, operator, file, b"", wanted)
        last = {**{key_of(record, operator.values): record.value for record in records}, **last}
        if wanted.whole and last:
            break
    return {key: value for key, value in last.items() if value is not None}


def _decoded(codec: StateCodec, values: Mapping[str, Any]) -> Callable[[bytes], bool]:
    def holds(key: bytes) -> bool:
        found = codec.key_values(codec.key_row(key))
        return all(found[name] == value for name, value in values.items())

    return holds


def _mark(codec: StateCodec, values: Mapping[str, Any]) -> bytes:
    """Return the longest byte string that every matching key's row contains, for any other fields."""
    best = b""
    fields = codec.key_type
    for name, value in values.items():
        type_ = fields.types[fields.names.index(name)]
        if isinstance(value, str):
            best = max(best, value.encode("utf-8", "surrogateescape"), key=len)
        elif isinstance(value, bytes):
            best = max(best, value, key=len)
        elif value is not None and type_ == _LONG:
            best = max(best, int(value).to_bytes(8, "little", signed=True), key=len)
    return best


_CHANGES = (FileKind.CHANGELOG, FileKind.DELTA)


@dataclass(frozen=True, slots=True)
class KeptRows:
    """The stored rows of a key after a batch.

    Attributes:
        batch_id: The batch.
        partition: The partition.
        pairs: The matching rows of each state, as stored.
        written: Whether the batch wrote one of these rows, even with an unchanged value; None if its files do
            not show this, so that only changed values can be detected.
    """

    batch_id: int
    partition: int
    pairs: tuple[Pairs, ...]
    written: bool | None


def kept_rows(
    storage: Storage,
    operator: OperatorStates,
    partition: int,
    wanted: Sequence[Sought],
    batches: Sequence[int],
) -> Iterator[KeptRows]:
    """Yield the rows of a key in one partition, batch by batch, oldest first.

    A batch is omitted if one of its files is not kept any more. The query may be running: files that it
    deletes during the read count as not kept.

    Cost: reads each file of the partition's stores at most once, and opens a base for each batch that wrote
    only a base.

    Args:
        storage: The checkpoint.
        operator: The operator, at any of the batches.
        partition: The partition.
        wanted: The lookups, in states of one store.
        batches: The batches, ascending.

    Raises:
        NotFound: A file was deleted before it was read.
        Corrupt: A file is damaged.
        Unsupported: The state's format cannot be read.
    """
    store = StoreId(operator.operator_id, partition, wanted[0].codec.name.store)
    folder = operator.folder(storage, store)
    walk = _Walk(storage, operator, store, wanted)
    for batch_id in batches:
        chain = folder.chain(batch_id + 1)
        if chain.missing is not None:
            walk.lost()
            continue
        change = next((file for file in folder.made_by(batch_id + 1) if file.kind in _CHANGES), None)
        written = walk.step(batch_id, chain.files, change)
        yield KeptRows(batch_id, partition, tuple(list(rows.items()) for rows in walk.rows), written)


class _Walk:
    """The rows of a key while they are read batch by batch."""

    def __init__(
        self, storage: Storage, operator: OperatorStates, store: StoreId, wanted: Sequence[Sought]
    ) -> None:
        self._storage = storage
        self._operator = operator
        self._store = store
        self._wanted = wanted
        self._last: int | None = None
        self._numbers: list[bytes | None] = [None] * len(wanted)
        self.rows: list[dict[bytes, bytes]] = [{} for _ in wanted]

    def lost(self) -> None:
        """Record that a batch is not kept, so that the next one is read from its base."""
        self._last = None

    def step(self, batch_id: int, chain: Sequence[StoreFile], change: StoreFile | None) -> bool | None:
        """Advance the rows to the next batch; return whether that batch wrote some, or None if unknown."""
        after = self._last == batch_id - 1 and self._last is not None
        self._last = batch_id
        base = chain[0] if chain and chain[0].kind is FileKind.ZIP else None
        if base is not None and after and base.version != batch_id + 1:
            base = None
        # A new family has its number from the snapshot of the same batch.
        if base is not None or not after or change is None:
            families = Families.in_base(self._storage, self._operator, self._store.name, base)
            self._numbers = [families.prefixes.get(part.codec.name.family) for part in self._wanted]
        if after and change is not None:
            return self._changed(change)
        before = self.rows
        self.rows = [
            rows_in(self._storage, self._operator, self._store, chain, part) for part in self._wanted
        ]
        if not after:
            # Rows that exist after the first batch were written by it.
            return any(self.rows) if batch_id == 0 else None
        return None if self.rows == before else True

    def _changed(self, change: StoreFile) -> bool:
        written = False
        for at, (wanted, number) in enumerate(zip(self._wanted, self._numbers, strict=True)):
            if number is None:
                continue
            found: Any = changed_by(
                self._storage, self._operator, self._store, change, wanted, self.rows[at], number
            )
            if found is not None:
                self.rows[at], written = found, True
        return written
