"""Reading the rows of state from the files of a checkpoint at a committed batch.

The base of each store is read row by row, and the changes of later batches are applied to it. These changes
are held in memory. With the memory provider, as in Spark, a whole partition is held in memory; a RocksDB base
is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice

from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.checkpoints.problems import SEE_DAMAGE, taking_rows_apart
from holdfast.checkpoints.state.rocksdb import Families, Overlay, Pairs, key_of, open_snapshot
from holdfast.checkpoints.state.states import OperatorStates, StateCodec, operator_states
from holdfast.errors import Unsupported
from holdfast.formats.files.records import parse_head, records_of
from holdfast.layout import FileKind, StoreFile, StoreId
from holdfast.storage.port import Storage, full, go_on

# The number of rows per chunk, large enough that the overhead per chunk is negligible.
CHUNK = 4096


def state_chunks(
    storage: Storage,
    batch_id: int | None = None,
    *,
    operator_id: int | None = None,
    partition: int | None = None,
    tell: ProgressCallback | None = None,
) -> Iterator[tuple[StateCodec, int, Pairs]]:
    """Yield all state at a committed batch as stored, in chunks of rows of one state and partition.

    The keys have no column-family number; the codec decodes the framing of keys and values. Chunks are
    ordered by partition, and rows have no particular order. The query may be running; it may then delete a
    file that an older batch needs.

    Cost: about a microsecond per row, and local disk space for one partition if the checkpoint is not on a
    local disk.

    Args:
        storage: The checkpoint, or a savepoint's view.
        batch_id: A committed batch whose files are kept; the newest by default.
        operator_id: The operator whose state to return; None for all.
        partition: The partition whose state to return; None for all.
        tell: The progress callback, called with stores done, total stores, and the current step.

    Raises:
        NotFound: The batch is not committed, or a file that the batch needs is missing.
        Corrupt: A file is damaged.
        Unsupported: The state's format cannot be read.
        Unavailable: The storage does not answer.
    """
    operators = [
        operator
        for operator in operator_states(storage, batch_id)
        if operator_id is None or operator.operator_id == operator_id
    ]
    stores = [(operator, store) for operator in operators for store in operator.stores(partition)]
    total, done = len(stores), 0
    for operator, store in stores:
        if tell is not None:
            tell(done, total, "reading state")
        for codec, pairs in store_chunks(storage, operator, store):
            yield codec, store.partition, pairs
        done += 1
    if tell is not None:
        tell(done, total, "reading state")


@dataclass(frozen=True, slots=True)
class Layers:
    """The files that make up a store's state.

    Attributes:
        base: The base, of this version or an older one; None if there is none.
        changes: The changes of the batches since the base; applying them to the base consumes them.
        marked: Whether a changelog shows that the store has column families.
    """

    base: StoreFile | None
    changes: Overlay
    marked: bool


def layers(storage: Storage, operator: OperatorStates, store: StoreId) -> Layers:
    """Read all changes of a store since its base.

    Raises:
        NotFound: A file is missing.
        Corrupt: A file is damaged.
    """
    base, changes = _split(operator.chain(storage, store))
    overlay = Overlay(operator.values)
    marked = False
    for file in changes:
        stream = operator.stream(storage, file)
        path = file.render()
        if file.kind is FileKind.CHANGELOG:
            marked = marked or parse_head(stream, path).version % 2 == 0
        overlay.add(records_of(file.kind, stream, path))
    return Layers(base, overlay, marked)


def base_rows(storage: Storage, operator: OperatorStates, base: StoreFile) -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows of a base of the memory provider."""
    records = records_of(base.kind, operator.stream(storage, base), base.render())
    return ((record.key, record.value) for record in records if record.value is not None)


def stored_values(
    storage: Storage, operator: OperatorStates, store: StoreId, keys: Iterable[tuple[str, bytes]]
) -> dict[tuple[str, bytes], bytes]:
    """Return the values of some keys, without reading the whole base.

    Cost: looks up the keys in the snapshot, and scans the later changes for them; with the memory provider,
    which has no index, reads the whole base.

    Args:
        storage: The checkpoint, or a savepoint's view.
        operator: The store's operator, as of its batch.
        store: The identity of the store.
        keys: Pairs of column family and key, as yielded by `state_chunks`.

    Returns:
        The values, as stored; missing keys are omitted.

    Raises:
        NotFound: A file that the batch needs is missing.
        Corrupt: A file is damaged.
        Unsupported: The state's format cannot be read.
    """
    base, changes = _split(operator.chain(storage, store))
    if base is None or base.kind is not FileKind.ZIP:
        wanted = set(keys)
        return {
            (codec.name.family, key): value
            for codec, pairs in store_chunks(storage, operator, store)
            for key, value in pairs
            if (codec.name.family, key) in wanted
        }
    with (
        taking_rows_apart(full(storage.uri, store.folder)),
        open_snapshot(storage, base, operator.values.delimiter) as snapshot,
    ):
        prefixes = Families.of(operator, store.name, snapshot.metadata).prefixes
        names = {prefixes[family] + key: (family, key) for family, key in keys if family in prefixes}
        overlay = Overlay(operator.values)
        for file in changes:
            records = records_of(file.kind, operator.stream(storage, file), file.render())
            overlay.add(record for record in records if key_of(record, operator.values) in names)
        rows = ((key, value) for key in names if (value := snapshot.get(key)) is not None)
        return {names[key]: value for key, value in overlay.over(rows)}


def store_chunks(
    storage: Storage, operator: OperatorStates, store: StoreId
) -> Iterator[tuple[StateCodec, Pairs]]:
    """Yield the rows of one store as `state_chunks` does.

    Raises:
        NotFound: A file is missing.
        Corrupt: A file is damaged.
    """
    with taking_rows_apart(full(storage.uri, store.folder)), ExitStack() as stack:
        found = layers(storage, operator, store)
        snapshot = None
        chunks: Iterable[Pairs] = ()
        if found.base is not None and found.base.kind is FileKind.ZIP:
            snapshot = stack.enter_context(open_snapshot(storage, found.base, operator.values.delimiter))
            chunks = snapshot.chunks(CHUNK)
        elif found.base is not None:
            rows = base_rows(storage, operator, found.base)
            chunks = iter(lambda: list(islice(rows, CHUNK)), [])
        named = None if snapshot is None else snapshot.metadata
        families = Families.of(operator, store.name, named, marked=found.marked)
        for chunk in found.changes.over_chunks(chunks, CHUNK):
            for prefix, pairs in families.sorted_out(chunk):
                go_on()
                yield operator.codec_of(store.name, _family(families, prefix, store)), pairs


def base_families(storage: Storage, operator: OperatorStates, store: StoreId) -> Families:
    """Return the column families of a store, from its base.

    Cost: reads the index of the base, but no rows.
    """
    base, _ = _split(operator.chain(storage, store))
    return Families.in_base(storage, operator, store.name, base)


def _split(chain: tuple[StoreFile, ...]) -> tuple[StoreFile | None, tuple[StoreFile, ...]]:
    if chain and chain[0].kind.whole:
        return chain[0], chain[1:]
    return None, chain


def _family(families: Families, prefix: bytes, store: StoreId) -> str:
    name = families.names.get(prefix)
    if name is None:
        # Spark writes a snapshot with the batch that creates a family, so one must exist.
        raise Unsupported(
            "the name of a column family is unknown, because the RocksDB snapshot is missing",
            code="HF-E7038",
            where=store.folder,
            found=f"column family {int.from_bytes(prefix, 'little')}",
            hint=SEE_DAMAGE,
        )
    return name
