"""What a state has held for a key, over the batches that are kept and the savepoints that were taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

from holdfast.at_rest.read.model import KeyState, NamedOperator, NamedState
from holdfast.at_rest.read.state_reader import StateReader
from holdfast.checkpoints.state.key_history import KeptRows, kept_rows
from holdfast.checkpoints.state.lookup import Sought
from holdfast.checkpoints.state.states import OperatorStates
from holdfast.errors import HoldfastError, NotFound
from holdfast.formats.rows.plain import plain
from holdfast.json_shapes import JsonShape, in_json, json_as, json_spread
from holdfast.savepoints.catalog import catalog as catalogs
from holdfast.savepoints.view import SavepointView
from holdfast.storage.port import Storage

FIRST: Final = "first"
SET, CHANGED, REMOVED = "set", "changed", "removed"


@dataclass(frozen=True, slots=True)
class KeyVersion(JsonShape):
    """A batch after which the state held another value for the key than before.

    Attributes:
        batch_id: The batch.
        planned_ms: When it was planned, in epoch milliseconds.
        change: `set`, `changed` or `removed`; `first` for what the key had when what is kept begins.
        savepoint: The savepoint's address, where only that still has the batch.
        found: What the state held.
    """

    batch_id: int = field(metadata=json_as(formerly="batch"))
    planned_ms: int | None
    change: str
    savepoint: str | None
    found: KeyState = field(metadata=json_spread("exists", "value"))


@dataclass(frozen=True, slots=True)
class KeyHistory(JsonShape):
    """The values of a key.

    Attributes:
        state: The state.
        key: The key.
        versions: Each value that it has had, oldest first.
        batches: The batches that were looked at, ascending.
        last_written: The newest batch that has written the key, be it with the value that it had; None where
            that was before what is kept, or where the files tell only of other values and there was none.
        exact: Whether the files tell of each write, and not only of other values.
    """

    state: NamedState = field(metadata=json_spread("operator_id", "operator", "state"))
    key: Mapping[str, Any] = field(metadata=json_as(convert=plain))
    versions: tuple[KeyVersion, ...]
    batches: tuple[int, ...] = field(metadata=json_as(convert=len, says="How many batches were looked at."))
    last_written: int | None
    exact: bool

    @property
    @in_json
    def first_batch(self) -> int | None:
        """The oldest batch that was looked at."""
        return self.batches[0] if self.batches else None

    @property
    @in_json
    def last_batch(self) -> int | None:
        """The newest batch that was looked at."""
        return self.batches[-1] if self.batches else None


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was found at one batch."""

    batch_id: int
    planned_ms: int | None
    savepoint: str | None
    found: KeyState
    written: bool | None


def key_history(
    reader: StateReader,
    operator: NamedOperator,
    state: NamedState,
    key: Mapping[str, Any],
    *,
    catalog: Storage | None = None,
) -> KeyHistory:
    """What a state has held for a key, batch by batch.

    Cost: each file of the key's partition is read once, for this key alone. Of a savepoint that has a batch
    which the checkpoint no longer has, the files that can hold the key.

    Args:
        reader: The checkpoint, at its newest batch or at the last one to look at.
        operator: The operator.
        state: One of its states.
        key: The key, its values of the types of the columns.
        catalog: Savepoints of the same query, for batches that the checkpoint does not keep.

    Raises:
        NotFound: A file has gone while it was about to be read.
        Corrupt: A file is damaged.
        Unsupported: The state is of a kind that cannot be read.
    """
    seen = {seen_at.batch_id: seen_at for seen_at in _retained(reader, operator, state, key)}
    if catalog is not None:
        for saved in _saved(catalog, reader, state, key):
            seen.setdefault(saved.batch_id, saved)
    ordered = [seen[batch_id] for batch_id in sorted(seen)]
    written = [batch.batch_id for batch in ordered if batch.written]
    return KeyHistory(
        state,
        dict(key),
        tuple(_versions(ordered)),
        tuple(batch.batch_id for batch in ordered),
        written[-1] if written else None,
        exact=state.source.notes_writes and all(batch.written is not None for batch in ordered[1:]),
    )


def _versions(seen: Sequence[_Seen]) -> Iterator[KeyVersion]:
    before: KeyState | None = None
    for batch in seen:
        value = _told(batch.found)
        if before is None:
            if batch.found.exists:
                # A query's first batch has set what is there; else it was there when what is kept begins.
                change = SET if batch.batch_id == 0 else FIRST
                yield KeyVersion(batch.batch_id, batch.planned_ms, change, batch.savepoint, batch.found)
        elif value != _told(before):
            change = REMOVED if not batch.found.exists else CHANGED if before.exists else SET
            yield KeyVersion(batch.batch_id, batch.planned_ms, change, batch.savepoint, batch.found)
        before = batch.found


def _told(found: KeyState) -> list[str]:
    """What makes two values the same: also those that do not equal themselves, as NaN."""
    return [repr((entry.sub, entry.value, entry.expires_ms)) for entry in found.entries]


def _retained(
    reader: StateReader, operator: NamedOperator, state: NamedState, key: Mapping[str, Any]
) -> Iterator[_Seen]:
    logs = operator.files.logs
    batches = [batch_id for batch_id in logs.committed if batch_id <= reader.batch_id]
    for files, some in _stretches(reader, operator, batches):
        wanted, partition = state.source.locate(state, key, files)
        partitions = range(operator.partitions) if partition is None else (partition,)
        walks = [kept_rows(reader.storage, files, number, wanted, some) for number in partitions]
        before: KeyState | None = None
        for kept in _together(walks):
            found = _found(state, key, wanted, kept)
            offsets = logs.offsets(kept[0].batch_id)
            written = _written(kept, before, found, state)
            planned = None if offsets is None else offsets.timestamp_ms
            yield _Seen(kept[0].batch_id, planned, None, found, written)
            before = found


def _stretches(
    reader: StateReader, operator: NamedOperator, batches: Sequence[int]
) -> Iterator[tuple[OperatorStates, list[int]]]:
    """Batches in a row under which the operator had as many partitions, and what reads its files then."""
    logs = operator.files.logs

    def partitions_at(batch_id: int) -> int | None:
        offsets = logs.offsets(batch_id)
        return None if offsets is None else offsets.partitions

    newest = partitions_at(operator.files.batch_id)
    for partitions, run in groupby(batches, key=partitions_at):
        stretch = list(run)
        yield operator.files if partitions == newest else _files_at(reader, operator, stretch[-1]), stretch


def _files_at(reader: StateReader, operator: NamedOperator, batch_id: int) -> OperatorStates:
    older = StateReader(reader.storage, batch_id)
    return next(other.files for other in older.operators if other.operator_id == operator.operator_id)


def _together(walks: Sequence[Iterator[KeptRows]]) -> Iterator[list[KeptRows]]:
    """The same batch of each partition that was looked into, as far as all have it."""
    found = [{rows.batch_id: rows for rows in walk} for walk in walks]
    for batch_id in sorted(set.intersection(*map(set, found))):
        yield [partition[batch_id] for partition in found]


def _found(
    state: NamedState,
    key: Mapping[str, Any],
    wanted: Sequence[Sought],
    kept: Sequence[KeptRows],
) -> KeyState:
    stored = (
        (place.codec, rows.partition, pairs)
        for rows in kept
        for place, pairs in zip(wanted, rows.pairs, strict=True)
    )
    return KeyState(state, kept[0].batch_id, dict(key), tuple(state.source.decode(state, key, stored)))


def _written(
    kept: Sequence[KeptRows], before: KeyState | None, found: KeyState, state: NamedState
) -> bool | None:
    if before is not None and _told(before) != _told(found):
        return True
    told = [rows.written for rows in kept]
    if not state.source.notes_writes:
        return None if before is None else False
    return None if None in told else any(told)


def _saved(
    catalog: Storage, reader: StateReader, state: NamedState, key: Mapping[str, Any]
) -> Iterator[_Seen]:
    """The key in each savepoint of the query."""
    query_id = _query_id(reader)
    for listed in catalogs.listed(catalog):
        manifest = listed.manifest
        if manifest is None or (query_id is not None and manifest.query_id != query_id):
            continue
        if manifest.batch_id > reader.batch_id:
            continue
        view = SavepointView(catalog, manifest.files, listed.uri)
        try:
            saved = StateReader(view, manifest.batch_id)
            _, there = saved.pick(state.name, state.operator_id)
        except NotFound:
            continue  # the query had no such state then
        found = saved.found(there, key)
        yield _Seen(manifest.batch_id, manifest.fields.get("planned_ms"), listed.uri, found, None)


def _query_id(reader: StateReader) -> str | None:
    from holdfast.checkpoints.checkpoint import read_query_id
    from holdfast.checkpoints.logs.logs import Logs

    try:
        return read_query_id(reader.storage, Logs(reader.storage))
    except HoldfastError:
        return None
