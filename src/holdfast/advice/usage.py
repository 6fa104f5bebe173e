"""The bytes and the object-store requests of a query's state.

The request counts were measured with a real S3 server, for each step of Spark's code. S3A has no directories:
to check that a path exists, it sends a HEAD for a file of that name and, if there is none, a LIST for objects
below it. Nearly every check therefore costs two requests, and one file of a checkpoint costs twenty-two.
"""

from __future__ import annotations

import itertools
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from holdfast import layout
from holdfast.checkpoints.checkpoint import CheckpointReport, Tree, read
from holdfast.checkpoints.logs import Logs
from holdfast.config.spark_defaults import ROCKSDB_PROVIDER
from holdfast.errors import Corrupt, HoldfastError, Unsupported
from holdfast.formats.providers import known_provider
from holdfast.json_shapes import JsonShape, in_json
from holdfast.layout import (
    FileKind,
    HadoopChecksumFile,
    SharedSstFile,
    SourceLogFile,
    SparkChecksumFile,
    StoreFile,
    StoreId,
)
from holdfast.savepoints import catalog as catalogs
from holdfast.storage.port import Storage

DAY_MS: Final = 86_400_000
# Spark's default settings.
MAINTENANCE_MS: Final = 60_000
DELTAS_FOR_SNAPSHOT: Final = 10
RETAIN: Final = 100


@dataclass(frozen=True, slots=True)
class Requests(JsonShape):
    """The number of requests, by the categories for which object stores charge.

    Attributes:
        writes: Objects written or copied (PUT, COPY).
        lists: Listings (LIST).
        reads: Reads of objects or their metadata (GET, HEAD).
        deletes: Objects deleted (DELETE), free in most object stores.
    """

    writes: float = 0.0
    lists: float = 0.0
    reads: float = 0.0
    deletes: float = 0.0

    @property
    @in_json
    def total(self) -> float:
        """Return the number of all requests."""
        return self.writes + self.lists + self.reads + self.deletes

    def __add__(self, other: Requests) -> Requests:
        return Requests(
            self.writes + other.writes,
            self.lists + other.lists,
            self.reads + other.reads,
            self.deletes + other.deletes,
        )

    def times(self, factor: float) -> Requests:
        """Return the numbers of requests multiplied by a factor."""
        return Requests(self.writes * factor, self.lists * factor, self.reads * factor, self.deletes * factor)


NONE: Final = Requests()
# The check of a missing path: HEAD, then LIST.
ABSENT: Final = Requests(reads=1, lists=1)
# The check of an existing file.
PRESENT: Final = Requests(reads=1)
# A rename within S3A: source and target are checked, the source once more, then COPY and DELETE.
_RENAME: Final = PRESENT + ABSENT + PRESENT + Requests(writes=1, deletes=1)
# Checks of Hadoop's FileContext before a rename, made twice: source, target, target's parent.
_BEFORE_RENAME: Final = PRESENT + ABSENT + ABSENT
# The requests of renaming a temporary file.
RENAMING: Final = _BEFORE_RENAME.times(2) + _RENAME
# A file that Spark publishes atomically: its parent and the temporary file are checked, the latter once more
# by the LIST of its creation, written, and renamed.
WHOLE_FILE: Final = ABSENT + ABSENT + Requests(lists=1) + Requests(writes=1) + RENAMING
# A data file that RocksDB's snapshots share: checked, then uploaded to its final path.
DATA_FILE: Final = ABSENT + Requests(writes=1)
# A deleted file: checked, deleted, and S3A checks whether its directory would be empty.
DELETED: Final = PRESENT + Requests(deletes=1, lists=1)
# A deleted data file, for which Spark also checks for a checksum file, which never exists.
_DATA_DELETED: Final = DELETED + ABSENT
# What RocksDB's cleanup lists before it deletes data: the data directory, and the log directory, which is
# missing.
_CLEANING: Final = Requests(lists=1) + ABSENT
# A file of the offset log or the commit log, which Spark checks first.
LOG_FILE: Final = ABSENT + WHOLE_FILE


@dataclass(frozen=True, slots=True)
class QueryShape:
    """The properties of a query that determine its number of requests.

    Attributes:
        stores: State stores that each batch commits: those of every partition of every operator.
        incremental: Whether a batch writes its changes, with a snapshot after several batches; otherwise each
            batch of RocksDB writes a snapshot.
        rocksdb: Whether stores are in RocksDB; False for stores on the heap.
        checksums: Whether each state file has a checksum file.
        log_sources: Sources that write a file into the checkpoint for each batch, such as file sources.
        snapshot_files: Data files that a RocksDB snapshot adds.
        deltas_for_snapshot: The number of batches from one snapshot to the next, if incremental.
        maintenance_ms: The time from one maintenance of the stores to the next.
    """

    stores: int
    incremental: bool = True
    rocksdb: bool = True
    checksums: bool = True
    log_sources: int = 0
    snapshot_files: float = 1.0
    deltas_for_snapshot: int = DELTAS_FOR_SNAPSHOT
    maintenance_ms: int = MAINTENANCE_MS


@dataclass(frozen=True, slots=True)
class DailyRequests(JsonShape):
    """The requests per day, by their cause.

    Attributes:
        per_batch: Requests of one batch.
        batches: The number of batches per day.
        maintenance: Requests of the stores' maintenance per day: snapshots, and deletions of unused files.
        total: All requests per day.
    """

    per_batch: Requests
    batches: float
    maintenance: Requests
    total: Requests


def daily_requests(shape: QueryShape, interval_ms: float) -> DailyRequests:
    """Return the requests per day.

    Args:
        shape: The properties of the query.
        interval_ms: The time from one batch to the next.
    """
    batches = DAY_MS / interval_ms
    per_batch = batch_requests(shape)
    maintenance = maintenance_requests(shape, interval_ms).times(DAY_MS / shape.maintenance_ms)
    return DailyRequests(per_batch, batches, maintenance, per_batch.times(batches) + maintenance)


def batch_requests(shape: QueryShape) -> Requests:
    """Return the requests of a batch: its two logs, the logs of sources, and the writes of each store.

    Once the limit of kept batches is reached, each new batch causes the deletion of an older one, at once or
    at the next maintenance. The result therefore includes one deletion of each file that a batch writes.
    """
    logs = (LOG_FILE + DELETED).times(2 + shape.log_sources)
    return logs + _store_requests(shape).times(shape.stores)


def snapshot_requests(shape: QueryShape) -> Requests:
    """Return the requests of one snapshot of one store, from its first file to its deletion.

    A snapshot consists of a file with its checksum and, for RocksDB, the data files that no earlier snapshot
    has.
    """
    own = (WHOLE_FILE + DELETED).times(_files(shape))
    return own + (DATA_FILE + _DATA_DELETED).times(shape.snapshot_files if shape.rocksdb else 0)


def maintenance_requests(shape: QueryShape, interval_ms: float) -> Requests:
    """Return the requests of one maintenance run of all stores.

    A maintenance run lists each store (a store on the heap twice), writes a snapshot of each store with
    enough new batches unless batches write snapshots, and lists RocksDB's data files when it deletes a
    snapshot.

    Args:
        shape: The properties of the query.
        interval_ms: The time from one batch to the next.
    """
    batches = shape.maintenance_ms / interval_ms
    look = Requests(lists=1 if shape.rocksdb else 2)
    snapshots = min(1.0, batches / shape.deltas_for_snapshot) if shape.incremental else 0.0
    cleanings = (snapshots if shape.incremental else min(1.0, batches)) if shape.rocksdb else 0.0
    a_store = look + snapshot_requests(shape).times(snapshots) + _CLEANING.times(cleanings)
    return a_store.times(shape.stores)


def _store_requests(shape: QueryShape) -> Requests:
    change = (WHOLE_FILE + DELETED).times(_files(shape))
    return change if shape.incremental else snapshot_requests(shape)


def _files(shape: QueryShape) -> int:
    return 2 if shape.checksums else 1


# The operator, and the name of its store.
StateKey = tuple[int, str]
# The maximum number of pairs of batches from which the interval is estimated.
_INTERVALS: Final = 12


@dataclass(frozen=True, slots=True)
class MeasuredCheckpoint:
    """The measured content of a checkpoint.

    Attributes:
        checkpoint: The checkpoint at its newest batch.
        provider: `rocksdb` or `memory`; None without state.
        shape: The properties that determine the number of requests.
        interval_ms: The median time from one kept batch to the next; None with fewer than two.
        newest: Bytes that a restart reads, by state.
        all_of_state: Bytes of all state files, by state.
        other_bytes: Bytes of all other files.
        newest_change: The newest changelog or delta file, for its compression; None without one.
    """

    checkpoint: CheckpointReport
    provider: str | None
    shape: QueryShape
    interval_ms: int | None
    newest: dict[StateKey, int]
    all_of_state: dict[StateKey, int]
    other_bytes: int
    newest_change: StoreFile | None


@dataclass(frozen=True, slots=True)
class SavedBytes:
    """The size of a query's savepoints, shared objects counted once.

    Attributes:
        savepoints: The number of savepoints.
        states: The bytes of state in the savepoints, by state.
        size_bytes: The total size of the savepoints in bytes.
    """

    savepoints: int
    states: dict[StateKey, int]
    size_bytes: int


def measure(storage: Storage) -> MeasuredCheckpoint:
    """Measure a checkpoint, whether or not its query is running.

    Cost: lists each directory, and reads the size of each file, the newest logs, and the index of each
    store's newest snapshot. The state itself is not read.

    Raises:
        NotFound: The checkpoint does not exist.
        Corrupt: A file that was read is damaged.
        Unsupported: The state is in a database, or its provider is unknown.
        Unavailable: The storage does not answer.
    """
    checkpoint = read(storage)
    if checkpoint.external is not None:
        raise Unsupported(
            "`cost` does not support state in a database",
            code="HF-E7001",
            where=checkpoint.uri,
            found=f"state in {checkpoint.external.database or 'a database'}",
            expected="state in files",
            hint="estimate the size of the state with `holdfast checkpoint show CHECKPOINT`",
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
        checksums += isinstance(place, SparkChecksumFile) and isinstance(file, StoreFile)
        if isinstance(file, (StoreFile, SharedSstFile)):
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
    return MeasuredCheckpoint(
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
    """Measure the savepoints of a query; skip those with a damaged manifest.

    Cost: lists each catalog, and reads the manifest of each savepoint of the query.

    Args:
        addresses: Catalogs, each with the only savepoint to count, or None for all savepoints of the query.
        query_id: The id of the query.
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
    """Return the file that a checksum file covers, or the path itself."""
    is_checksum = False
    while isinstance(place, (SparkChecksumFile, HadoopChecksumFile)):
        place, is_checksum = layout.parse(place.of), True
    return place, is_checksum


def _provider(checkpoint: CheckpointReport) -> str | None:
    if not checkpoint.operators:
        return None
    provider = known_provider(checkpoint.confs, checkpoint.uri)
    return "rocksdb" if provider == ROCKSDB_PROVIDER else "memory"


def _shape(
    versions: dict[StoreId, list[StoreFile]], shared: Counter[StoreId], checksums: bool, provider: str | None
) -> QueryShape:
    """Return the shape of a query, derived from the files of its stores."""
    kinds = Counter(file.kind for files in versions.values() for file in files)
    changes = kinds[FileKind.CHANGELOG] + kinds[FileKind.DELTA]
    snapshots = kinds[FileKind.ZIP]
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
    """Return the number of batches between two snapshots of a store that has several."""
    apart: list[int] = []
    for files in stores:
        bases = sorted({file.version for file in files if file.kind.whole})
        apart += [later - earlier for earlier, later in itertools.pairwise(bases)]
    return max(1, round(statistics.median(apart))) if apart else DELTAS_FOR_SNAPSHOT


def _newest_change(stores: Iterable[Sequence[StoreFile]]) -> StoreFile | None:
    changes = (
        file for files in stores for file in files if file.kind in (FileKind.CHANGELOG, FileKind.DELTA)
    )
    return max(changes, key=lambda file: (file.version, file.store), default=None)


def _interval_ms(storage: Storage, offered: Sequence[int]) -> int | None:
    """Return the median time from one batch to the next, over the newest ones."""
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
