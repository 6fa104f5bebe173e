"""The rows of one key, straight out of the files that can hold them.

A base of RocksDB is asked for the key; of what has changed since, and with the memory provider of all, only
the files whose bytes have the key's in them are read record by record. Nothing else is taken apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from holdfast.checkpoints.problems import taking_rows_apart
from holdfast.checkpoints.state.families import Families, Pairs
from holdfast.checkpoints.state.key_partition import partition_of_key, placing_fields
from holdfast.checkpoints.state.replay import Overlay, key_of
from holdfast.checkpoints.state.rocksdb import Snapshot, opened
from holdfast.checkpoints.state.states import OperatorStates, StateCodec
from holdfast.formats.files.records import Record, records_of
from holdfast.formats.rows.row_forms import KeyKind
from holdfast.formats.rows.spark_types import Atom
from holdfast.formats.rows.unsafe_row import RowCodec
from holdfast.layout import Kind, StoreFile, StoreId
from holdfast.storage.port import Storage, full

_LONG: Final = Atom("long")


@dataclass(frozen=True, slots=True)
class Sought:
    """What is looked for in one state.

    Attributes:
        codec: The state.
        start: The bytes that its keys begin with, as RocksDB stores them; None where they cannot be searched
            for, and every key is looked at.
        whole: Whether `start` is a key and not only the beginning of some.
        needle: Bytes that any such key has in it, at least.
        holds: Whether a stored key is one of those that are looked for.
    """

    codec: StateCodec
    start: bytes | None
    whole: bool
    needle: bytes
    holds: Callable[[bytes], bool]


@dataclass(frozen=True, slots=True)
class FoundRows:
    """A key's rows in one partition, as they are stored but without the number of their column family."""

    partition: int
    pairs: Pairs


def sought(codec: StateCodec, values: Mapping[str, Any]) -> Sought:
    """What to look for, for the keys with these values.

    Args:
        codec: The state.
        values: All fields of its keys, or as many of the first as `placing_fields` says.

    Raises:
        Invalid: A value is not of its field's type.
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
    """The rows of a state whose keys have these values, partition by partition; nothing where there are none.

    Cost: the listing of a folder, the opening of a snapshot, and the bytes of the files since; where the
    partition is not known, as often as there are partitions.

    Args:
        storage: The checkpoint, or a savepoint's view.
        operator: The operator, at its batch.
        codec: One of its states.
        values: All fields of the keys, or as many of the first as `placing_fields` says.

    Raises:
        Invalid: A value is not of its field's type.
        NotFound: A file that the batch needs is gone.
        Corrupt: A file is damaged.
        Unsupported: The state is of a kind that cannot be read.
    """
    placing = dict(list(values.items())[: placing_fields(codec)])
    partition = partition_of_key(operator, codec, placing)
    wanted = sought(codec, values)
    for candidate in range(operator.partitions) if partition is None else (partition,):
        pairs = rows_of(storage, operator, candidate, wanted)
        if pairs:
            yield FoundRows(candidate, pairs)


def rows_of(storage: Storage, operator: OperatorStates, partition: int, wanted: Sought) -> Pairs:
    """The rows that are looked for, in one partition.

    Raises:
        NotFound: A file that the batch needs is gone.
        Corrupt: A file is damaged.
        Unsupported: The state is of a kind that cannot be read.
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
    """The rows that are looked for, in some files of a store: a base, and changes in their order.

    Raises:
        NotFound: A file is gone.
        Corrupt: A file is damaged.
        Unsupported: The state is of a kind that cannot be read.
    """
    with taking_rows_apart(full(storage.uri, store.folder)):
        if any(file.kind in (Kind.DELTA, Kind.SNAPSHOT) for file in chain):
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
    """What a batch has made of the rows that are looked for; None where it has written none of them.

    Args:
        storage: The checkpoint.
        operator: The operator.
        store: The store.
        change: What the batch has written.
        wanted: What is looked for.
        before: Its rows before.
        number: What the keys of its family begin with.

    Raises:
        NotFound: The file is gone.
        Corrupt: It is damaged.
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
        whole = bool(chain) and chain[0].kind is Kind.ZIP
        snapshot = (
            stack.enter_context(opened(storage, chain[0], operator.values.delimiter)) if whole else None
        )
        metadata = None if snapshot is None else snapshot.metadata
        name = wanted.codec.name
        # Spark writes a snapshot with the batch that makes a family, and notes its number there.
        number = Families.of(operator, name.store, metadata).prefixes.get(name.family)
        if number is None:
            return {}  # nothing was ever written to it
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
) -> list[Record]:
    """The records of the keys that are looked for. Most files have none, and need not be taken apart."""
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
    """The last word on each key, from the newest file back to the base."""
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
    """The longest bytes that the row of any such key has in it, whatever its other fields are."""
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
