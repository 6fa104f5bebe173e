"""The content of a checkpoint at its newest committed batch: operators, state, batches, growth."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

from holdfast import layout
from holdfast.checkpoints.logs import Logs, written_ms
from holdfast.checkpoints.naming import variables
from holdfast.checkpoints.problems import no_checkpoint
from holdfast.checkpoints.stores import NotedOperator, StoreFolder, noted_operators, partitions_of
from holdfast.config.checks import place_word
from holdfast.errors import Corrupt, HoldfastError, Internal, NotFound
from holdfast.formats.files.compression import codec_name
from holdfast.formats.logs.batch_logs import CODEC, PROVIDER, OffsetLog, fixes_partitions, parse_query
from holdfast.formats.operators import KEYED_WORDS, FamilyUse, OperatorName, state_name, use_of
from holdfast.formats.providers import ExternalState, external_state, provider_name
from holdfast.json_shapes import NOT_IN_JSON, JsonShape, in_json, json_as, json_spread
from holdfast.layout import FileKind, Log, Place, StoreFile, StoreId
from holdfast.storage.local import file_of
from holdfast.storage.port import Listing, Names, ReadOnly, Storage, full

# The fields of an operator's names in JSON.
NAMES: Final = ("display_name", "operator_kind", "spark_name")
# A progress callback, called with the work done, the total, and the current step.
ProgressCallback = Callable[[int, int, str], None]


def _offset(written: str | None) -> Any:
    return None if written is None else json.loads(written)


def _offsets(written: Mapping[str, str | None]) -> dict[str, Any]:
    return {name: _offset(offset) for name, offset in written.items()}


def _log_versions(versions: tuple[int, int] | None) -> dict[str, int] | None:
    return None if versions is None else {"offsets": versions[0], "commits": versions[1]}


@dataclass(frozen=True, slots=True)
class Source(JsonShape):
    """A source of the query.

    Attributes:
        name: The number of the source in the query, or the name that the query gave it.
        offset: The end offset of the newest committed batch, in the source's JSON; None before the first row.
        planned: The end offset of the batch that is planned but not committed; None without such a batch.
    """

    name: str
    offset: str | None = field(metadata=json_as(convert=_offset))
    planned: str | None = field(metadata=json_as(convert=_offset))


@dataclass(frozen=True, slots=True)
class Store(JsonShape):
    """A state store at the newest committed batch.

    Attributes:
        id: The operator, partition and name of the store.
        version: The version that the batch wrote: its id plus one.
        files: The files to read: a base, then one change file for each later batch, oldest first.
        missing: The first required file that is missing; None if none is.
        size_bytes: The size of these files and of the data files that the base references, in bytes.
        new_bytes: The bytes that the newest batch added.
        base_keys: The number of keys in the base, if RocksDB counts them; otherwise None.
    """

    id: StoreId = field(metadata=json_spread("partition", "store"))
    version: int
    files: tuple[StoreFile, ...] = field(
        metadata=json_as(convert=len, says="The number of files to read for it.")
    )
    missing: str | None
    size_bytes: int
    new_bytes: int
    base_keys: int | None

    @property
    @in_json
    def base_version(self) -> int:
        """The version of the base; 0 if the changes start with the first batch."""
        first = self.files[0] if self.files else None
        return first.version if first is not None and first.kind.whole else 0


@dataclass(frozen=True, slots=True)
class StatefulOperator(JsonShape):
    """A stateful operator.

    Attributes:
        operator_id: The number of the operator in the plan.
        name: Spark's name for its type, as in `OperatorName.spark_name`.
        partitions: The number of partitions of its state.
        gathered: Whether one task has all of its state, because it has no key, regardless of the number of
            partitions that is set.
        store_names: The names of the stores in each partition.
        format_version: The state-checkpoint format: 2 if state files have unique names, otherwise 1.
        variables: The state variables of transformWithState.
        stores: All stores of all partitions.
        oldest: The oldest version of which partition 0 has a file; the other partitions are cleaned up
            together with it.
        named: The names of the operator.
        noted: Whether Spark recorded the operator's metadata, as Spark 4.0 and later do.
    """

    operator_id: int
    name: str
    partitions: int
    gathered: bool
    store_names: tuple[str, ...] = field(metadata=json_as("stores"))
    format_version: int
    variables: tuple[str, ...]
    stores: tuple[Store, ...] = field(metadata=json_as("partition_stores"))
    oldest: int | None = field(metadata=json_as("oldest_version"))
    named: OperatorName = field(metadata=json_spread(*NAMES))
    noted: bool = field(metadata=NOT_IN_JSON)

    @property
    @in_json
    def state_names(self) -> tuple[str, ...]:
        """The names of the operator's states, except internal ones."""
        if self.variables and self.named.operator_kind != KEYED_WORDS:
            return self.variables
        stores = (name for name in self.store_names if use_of(self.name, name) in (None, FamilyUse.JOIN_ROWS))
        return tuple(state_name(self.named, name) for name in stores)

    @property
    @in_json
    def size_bytes(self) -> int:
        """The number of bytes of state that a restart reads."""
        return sum(store.size_bytes for store in self.stores)

    @property
    @in_json
    def new_bytes(self) -> int:
        """The number of bytes of state that the newest batch added."""
        return sum(store.new_bytes for store in self.stores)

    @property
    @in_json
    def base_keys(self) -> int | None:
        """The number of keys in the bases; None unless all are counted."""
        keys = [store.base_keys for store in self.stores]
        return sum(count for count in keys if count is not None) if keys and None not in keys else None


@dataclass(frozen=True, slots=True)
class CheckpointReport(JsonShape):
    """The content of a checkpoint's files.

    Attributes:
        uri: The address of the checkpoint.
        query_id: The permanent id of the query.
        offered: The batches in the offset log that are still kept, ascending.
        committed: The batches in the commit log that are still kept, ascending.
        batch_id: The newest committed batch; None before the first.
        watermark_ms: The watermark of the next batch; None without one.
        planned_ms: The time when the newest committed batch was planned, in epoch milliseconds.
        confs: The settings that are pinned in the checkpoint.
        sources: The query's sources.
        operators: The stateful operators of the query.
        log_versions: The versions of the offset log and of the commit log.

    Example:
        report: hf.checkpoints.CheckpointReport = hf.checkpoints.read("checkpoints/visits")
        assert (report.provider, report.uncommitted) == ("RocksDBStateStoreProvider", None)
    """

    uri: str = field(metadata=json_as("checkpoint"))
    query_id: str
    offered: tuple[int, ...] = field(metadata=NOT_IN_JSON)
    committed: tuple[int, ...] = field(
        metadata=json_as("batches", len, "The number of batches that are kept.")
    )
    batch_id: int | None
    watermark_ms: int | None
    planned_ms: int | None
    confs: Mapping[str, str]
    sources: tuple[Source, ...]
    operators: tuple[StatefulOperator, ...]
    log_versions: tuple[int, int] | None = field(metadata=json_as(convert=_log_versions))

    @property
    @in_json
    def uncommitted(self) -> int | None:
        """The batch that is planned but not committed: it is running, or will run again at the next start."""
        newest = self.offered[-1] if self.offered else None
        return newest if newest is not None and (self.batch_id is None or newest > self.batch_id) else None

    @property
    @in_json
    def provider(self) -> str | None:
        """The short name of the state store provider, or its class if it has no short name."""
        external = self.external
        name = self.confs.get(PROVIDER) if external is None else external.provider
        return None if name is None or not self.operators else provider_name(name)

    @property
    @in_json
    def database(self) -> str | None:
        """The database with the state, or the original one of a savepoint; None for state in files."""
        external = self.external
        return None if external is None else external.database

    @property
    def external(self) -> ExternalState | None:
        """Return the database with the state, or the original one of a savepoint; None for state in files."""
        return external_state(self.confs)

    @property
    @in_json
    def size_bytes(self) -> int:
        """The number of bytes of state that a restart reads."""
        return sum(operator.size_bytes for operator in self.operators)

    @property
    @in_json
    def new_bytes(self) -> int:
        """The number of bytes of state that the newest batch added."""
        return sum(operator.new_bytes for operator in self.operators)

    @property
    @in_json
    def oldest_batch(self) -> int | None:
        """The oldest committed batch that the checkpoint still keeps."""
        return self.committed[0] if self.committed else None


@dataclass(frozen=True, slots=True)
class OperatorBatch:
    """The state files that a batch added for one operator.

    Attributes:
        operator_id: The number of the operator in the plan.
        name: Spark's name for the operator's type.
        files: The number of state files that the batch added.
        new_bytes: The size of these files in bytes.
        named: The names of the operator.
    """

    operator_id: int
    name: str
    files: int
    new_bytes: int
    named: OperatorName = field(metadata=json_spread(*NAMES))


@dataclass(frozen=True, slots=True)
class BatchFailure:
    """A driver that failed before a batch was committed.

    Attributes:
        attempt: The number of the driver, counted over the whole life of the job.
        at_ms: The time when the driver ended, in epoch milliseconds.
        cause: The area of the failure: `user code`, `source`, `sink`, `state`, `resources`, or `unknown`.
        error: The error in one line.
    """

    attempt: int
    at_ms: int
    cause: str
    error: str


@dataclass(frozen=True, slots=True)
class CommittedBatch(JsonShape):
    """A committed batch, as recorded in the files that the checkpoint still keeps.

    Attributes:
        batch_id: The id of the batch.
        planned_ms: The time when the batch was planned, in epoch milliseconds.
        watermark_ms: The watermark with which the batch ran; None without one.
        next_watermark_ms: The watermark that the batch set for the next one.
        offsets: The end offset of each source, in the source's JSON.
        operators: The state files added for each operator; empty if they have been deleted.
        committed_ms: The time when the batch was committed, in epoch milliseconds; None if unknown.
        duration_ms: The duration of the batch in milliseconds; None if unknown.
        duration_source: `registry` if a supervisor measured it, `files` if it is estimated from the times of
            the log files, from the end of planning to the commit.
        failures: The drivers that failed before the batch was committed; None if no registry knows the batch.

    Example:
        batches: tuple[hf.checkpoints.CommittedBatch, ...] = hf.checkpoints.history("checkpoints/visits", 2)
        assert [batch.batch_id for batch in batches] == [10, 11]
    """

    batch_id: int
    planned_ms: int
    watermark_ms: int | None
    next_watermark_ms: int | None
    offsets: Mapping[str, str | None] = field(metadata=json_as(convert=_offsets))
    operators: tuple[OperatorBatch, ...]
    committed_ms: int | None = None
    duration_ms: int | None = None
    duration_source: str | None = None
    failures: tuple[BatchFailure, ...] | None = None

    @property
    @in_json
    def new_bytes(self) -> int:
        """The number of bytes of state that the batch added."""
        return sum(operator.new_bytes for operator in self.operators)

    @property
    @in_json
    def files(self) -> int:
        """The number of state files that the batch added."""
        return sum(operator.files for operator in self.operators)


_IN_ROOT = frozenset({layout.OFFSETS, layout.COMMITS, layout.SOURCES, layout.STATE, layout.OWN})
_IN_STORE = frozenset({layout.OPERATOR_METADATA, layout.SSTS, layout.LOGS})


class Tree:
    """The listings of all folders of a checkpoint that Spark's layout defines.

    Args:
        storage: The checkpoint.
    """

    def __init__(self, storage: Storage) -> None:
        self._listings: dict[str, Listing] = {}
        self._names: dict[str, frozenset[str]] = {}
        self._walk(storage, "")

    def has(self, path: str) -> bool:
        """Return whether a file was listed."""
        folder, name = layout.split(path)
        return name in self._names.get(folder, ())

    def names(self, folder: str) -> frozenset[str]:
        """Return the names in a folder."""
        return self._names.get(folder, frozenset())

    def listing(self, folder: str) -> Listing | None:
        """Return a folder's listing."""
        return self._listings.get(folder)

    def size(self, path: str) -> int | None:
        """Return a file's size in bytes; None if it is missing."""
        folder, name = layout.split(path)
        listing = self._listings.get(folder)
        return None if listing is None or name not in self._names[folder] else listing.size(name)

    def places(self) -> Iterator[tuple[str, Place]]:
        """Yield the path of every file with its parsed form; folders are omitted."""
        for folder, names in self._names.items():
            inner = frozenset(subfolders(folder, names))
            for name in sorted(names - inner):
                path = layout.join(folder, name)
                yield path, layout.parse(path)

    def _walk(self, storage: Storage, folder: str) -> None:
        listing = self._listings[folder] = storage.list(folder)
        names = self._names[folder] = frozenset(listing.names)
        for name in sorted(subfolders(folder, names)):
            self._walk(storage, layout.join(folder, name))


class ListedCheckpoint(ReadOnly):
    """A read-only view of a checkpoint that was listed once, for reading many batches.

    No folder is listed a second time, and each file is read at most once and cached, so read only small
    files.

    Args:
        storage: The checkpoint.
        tree: The listing of the checkpoint.
    """

    def __init__(self, storage: Storage, tree: Tree) -> None:
        self._storage = storage
        self._tree = tree
        self._read: dict[str, bytes] = {}

    @property
    def uri(self) -> str:
        """See `Storage`."""
        return self._storage.uri

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """See `Storage`."""
        data = self._read.get(path)
        if data is None:
            data = self._read[path] = self._storage.read(path)
        return data[start:] if length is None else data[start : start + length]

    def list(self, path: str = "") -> Listing:
        """See `Storage`."""
        listing = self._tree.listing(path)
        return Names({}) if listing is None else listing

    def size(self, path: str) -> int | None:
        """See `Storage`."""
        return self._tree.size(path)

    def file_of(self, path: str) -> Path | None:
        """Return the local path of a file, or None if it must be read through the storage."""
        return file_of(self._storage, path)

    def _refuse(self, path: str) -> NoReturn:
        raise Internal(
            "cannot write to the listing of a checkpoint, which is read-only",
            code="HF-E9015",
            where=full(self.uri, path),
            hint="please report this",
        )


def subfolders(folder: str, names: Iterable[str]) -> Iterator[str]:
    """Yield those names in a folder that are folders in Spark's layout, without reading the storage."""
    parts = folder.split("/") if folder else []
    for name in names:
        if _is_folder(parts, name):
            yield name


def _is_folder(parts: list[str], name: str) -> bool:
    if not parts:
        return name in _IN_ROOT
    if parts[0] == layout.SOURCES:
        return len(parts) == 1 and not name.startswith(".")
    return parts[0] == layout.STATE and _is_state_folder(parts[1:], name)


def _is_state_folder(parts: list[str], name: str) -> bool:
    number = layout.number(name) is not None
    if len(parts) <= 1:
        return number or (len(parts) == 1 and name in (layout.OPERATOR_METADATA, layout.STATE_SCHEMA))
    if parts[1] == layout.OPERATOR_METADATA:
        return len(parts) == 2 and name == "v2"
    if parts[1] == layout.STATE_SCHEMA:
        return len(parts) == 2 and not name.startswith(".")
    if parts[-1] in _IN_STORE:
        return False
    return name in _IN_STORE or (len(parts) == 2 and "." not in name)


DEFAULT_CODEC = "lz4"
# A fast query may have deleted files of its batch before they were listed; a newer batch then exists.
_LOOKS = 3


def read(storage: Storage) -> CheckpointReport:
    """Read a checkpoint, whose query may be running.

    Cost: lists each store's folder, and reads the newest files of the logs and the index of each store's
    newest base. The state itself is not read, so the cost does not depend on its size.

    Raises:
        NotFound: The checkpoint does not exist.
        Corrupt: A file that was read is damaged; `verify` lists all damaged files.
        Unavailable: The storage does not answer.
    """
    try:
        found = _read(storage, Logs(storage))
        for _ in range(_LOOKS):
            if all(store.missing is None for operator in found.operators for store in operator.stores):
                break
            again = _read(storage, Logs(storage))
            if again.batch_id == found.batch_id:
                break
            found = again
        return found
    except Corrupt as error:
        raise _with_address(error, storage) from error


def unfixed_partitions(found: CheckpointReport) -> int | None:
    """Return the number of partitions of the state if the checkpoint does not fix it.

    None if it does, if all state is in one task, or without state.
    """
    if found.log_versions is None or fixes_partitions(found.log_versions[0], found.confs):
        return None
    return max((operator.partitions for operator in found.operators if not operator.gathered), default=None)


def state_format(storage: Storage) -> int | None:
    """Return the state-checkpoint format of the newest committed batch; None without a batch or state.

    Raises:
        Corrupt: The file of the commit is damaged.
        Unavailable: The storage does not answer.
    """
    logs = Logs(storage)
    commit = None if logs.newest is None else logs.commit(logs.newest)
    if commit is None or not storage.list(layout.STATE).names:
        return None
    return 1 if commit.state_ids is None else 2


def codec_of(offsets: OffsetLog | None) -> str:
    """Return the compression codec of state files that is pinned for a batch."""
    return codec_name(offsets.confs.get(CODEC, DEFAULT_CODEC)) if offsets is not None else DEFAULT_CODEC


def listed_stores(
    storage: Storage, logs: Logs, operator: NotedOperator, partition: int
) -> Iterator[StoreFolder]:
    """Yield the stores of one partition with the listings of their folders, for reading many batches."""
    codec = codec_of(None if logs.newest is None else logs.offsets(logs.newest))
    for index, name in enumerate(operator.store_names):
        store = StoreId(operator.folder.operator_id, partition, name)
        listing = storage.list(store.folder)
        unique_id = partial(logs.unique_id, store, index)
        yield StoreFolder(storage, store, listing, codec, unique_id, frozenset(listing.names))


def _read(storage: Storage, logs: Logs) -> CheckpointReport:
    query_id = read_query_id(storage, logs)
    newest = logs.newest
    offsets = None if newest is None else logs.offsets(newest)
    commit = None if newest is None else logs.commit(newest)
    offered = logs.offered[-1] if logs.offered else None
    latest = None if offered is None else logs.offsets(offered)
    planned = latest if offered is not None and (newest is None or offered > newest) else None
    shown = offsets or latest
    operators = [] if newest is None else noted_operators(storage, newest)
    return CheckpointReport(
        uri=storage.uri,
        query_id=query_id,
        offered=logs.offered,
        committed=logs.committed,
        batch_id=newest,
        watermark_ms=(commit.next_watermark_ms or None) if commit is not None else None,
        planned_ms=None if offsets is None else offsets.timestamp_ms,
        confs={} if shown is None else dict(shown.confs),
        sources=_sources(offsets, planned),
        operators=tuple(_operator(storage, logs, operator, newest or 0, shown) for operator in operators),
        log_versions=None if offsets is None or commit is None else (offsets.version, commit.version),
    )


def read_query_id(storage: Storage, logs: Logs) -> str:
    """Return the id of a checkpoint's query.

    Raises:
        NotFound: The checkpoint does not exist.
        Corrupt: The checkpoint exists, but its id is missing or damaged.
    """
    try:
        return parse_query(storage.read(layout.METADATA), layout.METADATA).query_id
    except NotFound as error:
        if logs.offered or logs.committed:
            raise Corrupt(
                "the file with the query's id is missing from the checkpoint",
                code="HF-E6004",
                where=layout.METADATA,
                hint="list all damage with `holdfast checkpoint verify CHECKPOINT`",
            ) from error
        raise no_checkpoint(storage) from error


def _sources(offsets: OffsetLog | None, planned: OffsetLog | None) -> tuple[Source, ...]:
    done = {} if offsets is None else offsets.offsets
    next_ = {} if planned is None else planned.offsets
    return tuple(Source(name, done.get(name), next_.get(name)) for name in [*done, *(next_.keys() - done)])


def _operator(
    storage: Storage, logs: Logs, noted: NotedOperator, newest: int, offsets: OffsetLog | None
) -> StatefulOperator:
    operator_id, metadata = noted.folder.operator_id, noted.metadata
    commit = logs.commit(newest)
    ids = None if commit is None or commit.state_ids is None else commit.state_ids.get(operator_id)
    partitions = partitions_of(storage, noted.folder, metadata, offsets, newest)
    codec = codec_of(offsets)

    def folder(partition: int, index: int) -> StoreFolder:
        store = StoreId(operator_id, partition, noted.store_names[index])
        unique_id = partial(logs.unique_id, store, index)
        return StoreFolder(storage, store, storage.list(store.folder), codec, unique_id)

    stores = [
        _store(folder(partition, index), newest + 1)
        for partition in range(partitions.count)
        for index in range(len(noted.store_names))
    ]
    return StatefulOperator(
        operator_id=operator_id,
        name=noted.named.spark_name,
        partitions=partitions.count,
        gathered=partitions.gathered,
        store_names=noted.store_names,
        format_version=1 if ids is None else 2,
        variables=variables(metadata),
        stores=tuple(stores),
        oldest=folder(0, 0).oldest(),
        named=noted.named,
        noted=metadata is not None,
    )


def _store(folder: StoreFolder, version: int) -> Store:
    chain = folder.chain(version)
    keys = -1
    if chain.files and chain.files[0].kind is FileKind.ZIP:
        with suppress(NotFound):  # the query has continued, and has deleted files that it no longer needs
            keys = folder.snapshot(chain.files[0]).keys
    return Store(
        id=folder.store,
        version=version,
        files=chain.files,
        missing=chain.missing,
        size_bytes=folder.read_bytes(chain),
        new_bytes=folder.new_bytes(version)[1],
        base_keys=keys if keys >= 0 else None,
    )


def _with_address(error: Corrupt, storage: Storage) -> HoldfastError:
    known = {
        "where": full(storage.uri, error.where or ""),
        "hint": error.hint or f"list all damage with `holdfast checkpoint verify {place_word(storage.uri)}`",
    }
    return Corrupt(error.fact, **(error.facts() | known))


# The origin of a batch's duration: a supervisor, or the times of the log files.
FROM_REGISTRY: Final = "registry"
FROM_FILES: Final = "files"
# Spark writes the offsets of a batch within this time after planning it; later file times are those of a
# copy.
_PLANNING_MS: Final = 60_000


def history(
    storage: Storage, last: int | None = None, tell: ProgressCallback | None = None
) -> tuple[CommittedBatch, ...]:
    """Return the committed batches that the checkpoint still keeps, oldest first.

    Spark keeps the newest batches only (`spark.sql.streaming.minBatchesToRetain`, 100 by default), so this
    does not replace metrics. A running query may delete a batch's files while they are counted; missing files
    count as zero bytes.

    Cost: lists each store's folder, and reads the size of each state file, the logs of each batch, and the
    index of each RocksDB snapshot.

    Args:
        storage: The checkpoint.
        last: The number of newest batches to return; None for all.
        tell: The progress callback, called with stores done, total stores, and the current step.

    Raises:
        NotFound: The checkpoint does not exist.
        Corrupt: A file that was read is damaged.
        Unavailable: The storage does not answer.
    """
    logs = Logs(storage)
    if not logs.offered and not logs.committed and storage.size(layout.METADATA) is None:
        raise no_checkpoint(storage)
    batches = logs.committed if last is None else logs.committed[max(len(logs.committed) - last, 0) :]
    operators = noted_operators(storage, logs.newest)
    total = sum(len(operator.folder.partitions) for operator in operators)
    added: list[dict[int, OperatorBatch]] = []
    done = 0
    for operator in operators:
        files: Counter[int] = Counter()
        sizes: Counter[int] = Counter()
        for partition in operator.folder.partitions:
            for folder in listed_stores(storage, logs, operator, partition):
                for batch_id in batches:
                    count, size = folder.new_bytes(batch_id + 1)
                    files[batch_id] += count
                    sizes[batch_id] += size
            done += 1
            if tell is not None:
                tell(done, total, "reading partitions")
        name = operator.named
        added.append(
            {
                batch_id: OperatorBatch(name.operator_id, name.spark_name, count, sizes[batch_id], name)
                for batch_id, count in files.items()
            }
        )
    made = (_batch(storage, logs, batch_id, added) for batch_id in batches)
    return tuple(batch for batch in made if batch is not None)


def _batch(
    storage: Storage, logs: Logs, batch_id: int, added: list[dict[int, OperatorBatch]]
) -> CommittedBatch | None:
    offsets, commit = logs.offsets(batch_id), logs.commit(batch_id)
    if offsets is None or commit is None:
        return None  # the query has deleted this batch since the logs were listed
    committed_ms, duration_ms = batch_times(storage, batch_id, offsets.timestamp_ms)
    return CommittedBatch(
        batch_id=batch_id,
        planned_ms=offsets.timestamp_ms,
        watermark_ms=offsets.watermark_ms or None,
        next_watermark_ms=commit.next_watermark_ms or None,
        offsets=dict(offsets.offsets),
        operators=tuple(counts[batch_id] for counts in added if batch_id in counts),
        committed_ms=committed_ms,
        duration_ms=duration_ms,
        duration_source=None if duration_ms is None else FROM_FILES,
    )


def batch_times(storage: Storage, batch_id: int, planned_ms: int) -> tuple[int | None, int | None]:
    """Return the commit time and the duration of a batch, from the times of its log files.

    A commit time without a duration is that of a batch whose offsets are missing. Both are None on a storage
    that keeps no such times, and for a copied checkpoint, whose files have the time of the copying.

    Args:
        storage: The checkpoint.
        batch_id: A committed batch.
        planned_ms: The time when the batch was planned, in epoch milliseconds.
    """
    committed_ms = written_ms(storage, Log.COMMITS, batch_id)
    offered_ms = written_ms(storage, Log.OFFSETS, batch_id)
    if committed_ms is None or offered_ms is None:
        return committed_ms, None
    if 0 <= offered_ms - planned_ms <= _PLANNING_MS and committed_ms >= offered_ms:
        return committed_ms, committed_ms - offered_ms
    return None, None


def state_bytes(
    storage: Storage, batches: Sequence[int], *, only_whole: bool = False
) -> dict[int, dict[int, int]]:
    """Return the bytes of state that a restart after each batch would read, by batch and operator.

    A running query may delete the files of old batches during this call; missing files count as zero bytes.

    Cost: lists each store's folder, and reads the size of each file and the index of each RocksDB snapshot.

    Args:
        storage: The checkpoint.
        batches: Committed batches.
        only_whole: Whether to omit batches with a missing file.

    Raises:
        Corrupt: A file that was read is damaged.
        Unavailable: The storage does not answer.
    """
    logs = Logs(storage)
    sizes: dict[int, dict[int, int]] = {batch_id: {} for batch_id in batches}
    for operator in noted_operators(storage, logs.newest):
        operator_id = operator.folder.operator_id
        for partition in operator.folder.partitions:
            for folder in listed_stores(storage, logs, operator, partition):
                for batch_id, by_operator in list(sizes.items()):
                    chain = folder.chain(batch_id + 1)
                    if only_whole and chain.missing is not None:
                        del sizes[batch_id]
                        continue
                    size = folder.read_bytes(chain)
                    by_operator[operator_id] = by_operator.get(operator_id, 0) + size
    return sizes
