"""The bytes of a checkpoint and of its savepoints by state, from listings."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from holdfast import layout
from holdfast.advice.cost.requests import DELTAS_FOR_SNAPSHOT, QueryShape
from holdfast.checkpoints.checkpoint import read
from holdfast.checkpoints.logs.logs import Logs
from holdfast.checkpoints.tree import Tree
from holdfast.checkpoints.values import Checkpoint
from holdfast.config.spark_defaults import ROCKSDB_PROVIDER
from holdfast.errors import Corrupt, HoldfastError, Unsupported
from holdfast.formats.providers import known_provider
from holdfast.layout import HadoopChecksum, Kind, SharedFile, SourceLogFile, SparkChecksum, StoreFile, StoreId
from holdfast.savepoints.catalog import catalog as catalogs
from holdfast.storage.port import Storage

# The operator, and the name of its store.
StateKey = tuple[int, str]
# So many pairs of batches tell how often one comes.
_INTERVALS: Final = 12


@dataclass(frozen=True, slots=True)
class Measured:
    """What is in a checkpoint.

    Attributes:
        checkpoint: The checkpoint at its newest batch.
        provider: `rocksdb` or `memory`; None without state.
        shape: What of it decides how many requests it makes.
        interval_ms: The median time from one kept batch to the next; None with fewer than two.
        newest: The bytes that a restart reads, by state.
        all_of_state: All bytes of state, by state.
        other_bytes: Those that are no state.
        newest_change: The newest file of changes, to look into; None without one.
    """

    checkpoint: Checkpoint
    provider: str | None
    shape: QueryShape
    interval_ms: int | None
    newest: dict[StateKey, int]
    all_of_state: dict[StateKey, int]
    other_bytes: int
    newest_change: StoreFile | None


@dataclass(frozen=True, slots=True)
class SavedBytes:
    """What savepoints of a query take, what they share counted once.

    Attributes:
        savepoints: How many there are.
        states: Their bytes of state, by state.
        size_bytes: All of their bytes.
    """

    savepoints: int
    states: dict[StateKey, int]
    size_bytes: int


def measure(storage: Storage) -> Measured:
    """Look at a checkpoint, of a query that runs or of one that does not.

    Cost: a listing of each folder, the size of each file, the newest logs, and the index of each store's
    newest snapshot. Nothing of the state itself is read.

    Raises:
        NotFound: There is no checkpoint.
        Corrupt: A file that was read is damaged.
        Unsupported: The state is in a database, or of a provider that is not known here.
        Unavailable: The storage does not answer.
    """
    checkpoint = read(storage)
    if checkpoint.external is not None:
        raise Unsupported(
            "what state in a database costs is not known here",
            where=checkpoint.uri,
            found=f"state in {checkpoint.external.database or 'a database'}",
            expected="state in files",
            hint="ask whoever runs the database; `holdfast checkpoint show` tells how large the state is",
        )
    tree = Tree(storage)
    states: Counter[StateKey] = Counter()
    versions: defaultdict[StoreId, list[StoreFile]] = defaultdict(list)
    shared: Counter[StoreId] = Counter()
    entries: Counter[str] = Counter()
    other = checksums = 0
    for path, place in tree.places():
        size = tree.size(path) or 0
        file, is_checksum = _of(place)
        checksums += isinstance(place, SparkChecksum) and isinstance(file, StoreFile)
        if isinstance(file, (StoreFile, SharedFile)):
            states[file.store.operator_id, file.store.name] += size
            if not is_checksum and isinstance(file, StoreFile):
                versions[file.store].append(file)
            elif not is_checksum:
                shared[file.store] += 1
        else:
            other += size
            if isinstance(place, SourceLogFile):
                entries[place.source] += 1
    newest: Counter[StateKey] = Counter()
    for operator in checkpoint.operators:
        for store in operator.stores:
            newest[operator.operator_id, store.id.name] += store.size_bytes
    provider = _provider(checkpoint)
    return Measured(
        checkpoint,
        provider,
        replace(
            _shape(versions, shared, checksums > 0, provider),
            stores=sum(len(operator.stores) for operator in checkpoint.operators),
            log_sources=sum(count > 1 for count in entries.values()),
        ),
        _interval_ms(storage, checkpoint.offered),
        dict(newest),
        {key: max(size, newest[key]) for key, size in states.items()},
        other,
        _newest_change(versions.values()),
    )


def saved_bytes(addresses: Iterable[tuple[Storage, str | None]], query_id: str) -> SavedBytes:
    """What the savepoints of a query take; one whose manifest is damaged is left out.

    Cost: a listing of each catalog, and the manifest of each savepoint of the query.

    Args:
        addresses: Catalogs, each with the one savepoint that counts, or None for all of the query.
        query_id: The query.
    """
    states: Counter[StateKey] = Counter()
    count = total = 0
    for catalog, only in addresses:
        known: set[str] = set()
        for savepoint_id in catalogs.ids_of_query(catalog, query_id) if only is None else [only]:
            try:
                manifest = catalogs.load(catalog, savepoint_id)
            except HoldfastError:
                continue
            if manifest.query_id != query_id:
                continue
            count += 1
            for file in manifest.files:
                if file.sha256 in known:
                    continue
                known.add(file.sha256)
                total += file.size_bytes
                state = layout.state_file(file.path)
                if state is not None:
                    states[state.store.operator_id, state.store.name] += file.size_bytes
    return SavedBytes(count, dict(states), total)


def _of(place: layout.Place) -> tuple[layout.Place, bool]:
    """The file that a place is a checksum of, or the place itself."""
    is_checksum = False
    while isinstance(place, (SparkChecksum, HadoopChecksum)):
        place, is_checksum = layout.parse(place.of), True
    return place, is_checksum


def _provider(checkpoint: Checkpoint) -> str | None:
    if not checkpoint.operators:
        return None
    provider = known_provider(checkpoint.confs, checkpoint.uri)
    return "rocksdb" if provider == ROCKSDB_PROVIDER else "memory"


def _shape(
    versions: dict[StoreId, list[StoreFile]], shared: Counter[StoreId], checksums: bool, provider: str | None
) -> QueryShape:
    """The shape, as far as the files of the stores tell it."""
    kinds = Counter(file.kind for files in versions.values() for file in files)
    changes = kinds[Kind.CHANGELOG] + kinds[Kind.DELTA]
    snapshots = kinds[Kind.ZIP]
    incremental = changes > 0 or provider != "rocksdb"
    return QueryShape(
        stores=0,
        incremental=incremental,
        rocksdb=provider == "rocksdb",
        checksums=checksums,
        snapshot_files=sum(shared.values()) / snapshots if snapshots else 1.0,
        deltas_for_snapshot=_snapshot_distance(versions.values()) if incremental else DELTAS_FOR_SNAPSHOT,
    )


def _snapshot_distance(stores: Iterable[Sequence[StoreFile]]) -> int:
    """The batches between two snapshots of a store, where it has several."""
    apart: list[int] = []
    for files in stores:
        bases = sorted({file.version for file in files if file.kind.whole})
        apart += [later - earlier for earlier, later in itertools.pairwise(bases)]
    return max(1, round(statistics.median(apart))) if apart else DELTAS_FOR_SNAPSHOT


def _newest_change(stores: Iterable[Sequence[StoreFile]]) -> StoreFile | None:
    changes = (file for files in stores for file in files if file.kind in (Kind.CHANGELOG, Kind.DELTA))
    return max(changes, key=lambda file: (file.version, file.store), default=None)


def _interval_ms(storage: Storage, offered: Sequence[int]) -> int | None:
    """The median time from one batch to the next, over the newest ones."""
    logs = Logs(storage)
    newest = offered[-_INTERVALS - 1 :]
    moments: dict[int, int] = {}
    for batch_id in newest:
        try:
            offsets = logs.offsets(batch_id)
        except Corrupt:
            continue
        if offsets is not None and offsets.timestamp_ms:
            moments[batch_id] = offsets.timestamp_ms
    apart = [
        moments[batch_id] - moments[batch_id - 1]
        for batch_id in newest
        if batch_id - 1 in moments and batch_id in moments
    ]
    positive = [each for each in apart if each > 0]
    return round(statistics.median(positive)) if positive else None
