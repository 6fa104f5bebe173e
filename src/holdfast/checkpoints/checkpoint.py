"""Read a checkpoint: what is in it, at the newest batch that is committed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from holdfast import layout
from holdfast.checkpoints.logs.logs import Logs
from holdfast.checkpoints.operator_naming import variables
from holdfast.checkpoints.problems import no_checkpoint
from holdfast.checkpoints.stores import NotedOperator, StoreFolder, noted_operators, partitions_of
from holdfast.checkpoints.values import Checkpoint, Operator, Source, Store
from holdfast.config.locations import place_word
from holdfast.errors import Corrupt, HoldfastError, NotFound
from holdfast.formats.files.compression import codec_name
from holdfast.formats.logs.offset_log import CODEC, OffsetLog
from holdfast.formats.logs.query import parse_query
from holdfast.layout import Kind, StoreId
from holdfast.storage.port import Storage, full

DEFAULT_CODEC = "lz4"
# A fast query may have deleted what its batch needed before it was listed; a newer batch is there then.
_LOOKS = 3


def read(storage: Storage) -> Checkpoint:
    """Read a checkpoint, of a query that runs or of one that does not.

    Cost: one listing of each store's folder, the newest files of the logs, and the index of each store's
    newest base. Nothing of the state itself is read, so this is quick for any size of state.

    Raises:
        NotFound: There is no checkpoint.
        Corrupt: A file that was read is damaged; `verify` finds the others too.
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


def state_format(storage: Storage) -> int | None:
    """The state-checkpoint format of the newest committed batch; None without one, or without state.

    Raises:
        Corrupt: The commit is damaged.
        Unavailable: The storage does not answer.
    """
    logs = Logs(storage)
    commit = None if logs.newest is None else logs.commit(logs.newest)
    if commit is None or not storage.list(layout.STATE).names:
        return None
    return 1 if commit.state_ids is None else 2


def codec_of(offsets: OffsetLog | None) -> str:
    """The compression of state files that a batch was fixed to."""
    return codec_name(offsets.confs.get(CODEC, DEFAULT_CODEC)) if offsets is not None else DEFAULT_CODEC


def listed_stores(
    storage: Storage, logs: Logs, operator: NotedOperator, partition: int
) -> Iterator[StoreFolder]:
    """The stores of one partition with all of their names, for who looks at many batches."""
    codec = codec_of(None if logs.newest is None else logs.offsets(logs.newest))
    for index, name in enumerate(operator.store_names):
        store = StoreId(operator.folder.operator_id, partition, name)
        listing = storage.list(store.folder)
        unique_id = partial(logs.unique_id, store, index)
        yield StoreFolder(storage, store, listing, codec, unique_id, frozenset(listing.names))


def _read(storage: Storage, logs: Logs) -> Checkpoint:
    query_id = read_query_id(storage, logs)
    newest = logs.newest
    offsets = None if newest is None else logs.offsets(newest)
    commit = None if newest is None else logs.commit(newest)
    offered = logs.offered[-1] if logs.offered else None
    planned = logs.offsets(offered) if offered is not None and offered != newest else None
    shown = offsets or planned
    operators = [] if newest is None else noted_operators(storage, newest)
    return Checkpoint(
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
    """The id of the query.

    Raises:
        NotFound: There is no checkpoint.
        Corrupt: There is one, and its id is lost or damaged.
    """
    try:
        return parse_query(storage.read(layout.METADATA), layout.METADATA).query_id
    except NotFound as error:
        if logs.offered or logs.committed:
            raise Corrupt(
                "the checkpoint has lost its query id",
                where=layout.METADATA,
                found="no such file",
                expected="the id of its query",
                hint="see what else is wrong with `holdfast checkpoint verify`",
            ) from error
        raise no_checkpoint(storage) from error


def _sources(offsets: OffsetLog | None, planned: OffsetLog | None) -> tuple[Source, ...]:
    done = {} if offsets is None else offsets.offsets
    next_ = {} if planned is None else planned.offsets
    return tuple(Source(name, done.get(name), next_.get(name)) for name in [*done, *(next_.keys() - done)])


def _operator(
    storage: Storage, logs: Logs, noted: NotedOperator, newest: int, offsets: OffsetLog | None
) -> Operator:
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
    return Operator(
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
    if chain.files and chain.files[0].kind is Kind.ZIP:
        with suppress(NotFound):  # the query has gone on since, and what it no longer needs is deleted
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
    return Corrupt(
        error.fact,
        where=full(storage.uri, error.where or ""),
        found=error.found,
        expected=error.expected,
        hint=error.hint
        or f"see what else is wrong with `holdfast checkpoint verify {place_word(storage.uri)}`",
    )
