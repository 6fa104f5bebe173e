"""The rewriting of a checkpoint's state with a different provider, number of partitions or format.

The rows stay the same; only their framing and their files change. The rewrite is a separate batch without
input: the whole state of every partition is written as the next version.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Final

from holdfast import layout
from holdfast.changes.working_copy import MaintenanceCommit, begin
from holdfast.checkpoints.checkpoint import ProgressCallback, StatefulOperator, codec_of, read
from holdfast.checkpoints.logs import operator_folders, read_operator
from holdfast.checkpoints.state.key_partition import KeyPartitions, require_in_partition
from holdfast.checkpoints.state.rocksdb import Families, Pairs
from holdfast.checkpoints.state.rows import base_families, store_chunks
from holdfast.checkpoints.state.states import OperatorStates, StateCodec, StateName, operator_states
from holdfast.clock import now_ms
from holdfast.config.spark_defaults import MEMORY_PROVIDER, ROCKSDB_PROVIDER
from holdfast.errors import Corrupt
from holdfast.formats.logs.batch_logs import ENCODING, PROVIDER, SHUFFLE_PARTITIONS, parse_offsets
from holdfast.formats.providers import NO_NOTE, ExternalState, provider_class
from holdfast.json_shapes import NOT_IN_JSON, in_json
from holdfast.layout import Log, LogFile, OperatorMetadataFile, StoreFile, StoreId
from holdfast.savepoints.spread import SharedCheckpoint, Tasks
from holdfast.savepoints.stores import StoreForm, StoreWriter
from holdfast.savepoints.view import workplace
from holdfast.storage.atomic_swap import passing
from holdfast.storage.port import Storage, full

# The number of stores that are written at once; each RocksDB store has about six open files.
OPEN_STORES: Final = 32
# The maximum memory of all of them, and of each one.
_BUFFERS: Final = 256 << 20
_MOST: Final = 64 << 20
_UNSAFE_ROW: Final = "unsaferow"


ROCKSDB: Final = "rocksdb"
MEMORY: Final = "memory"


@dataclass(frozen=True, slots=True)
class StateShape:
    """The layout of a checkpoint's state.

    Attributes:
        rocksdb: Whether state is in RocksDB; False for the heap.
        partitions: The number of partitions; operators without a key always have one.
        state_format: The state-checkpoint format, 1 or 2.
        external: The database to which the state is moved at the end, from files in the format of the heap
            store; None for state in files.
    """

    rocksdb: bool = field(metadata=NOT_IN_JSON)
    partitions: int
    state_format: int
    external: ExternalState | None = field(default=None, metadata=NOT_IN_JSON)

    @property
    def provider(self) -> str:
        """The class of the provider."""
        return ROCKSDB_PROVIDER if self.rocksdb else MEMORY_PROVIDER

    @property
    @in_json
    def backend(self) -> str:
        """The backend: `rocksdb`, `memory`, or the name of a database such as `redis`."""
        if self.external is not None:
            return self.external.kind.lower()
        return ROCKSDB if self.rocksdb else MEMORY

    @property
    @in_json
    def database(self) -> str | None:
        """The database of the state; None for state in files."""
        return None if self.external is None else self.external.database


def rewrite(
    checkpoint: Storage,
    shape: StateShape,
    folder: Path,
    tell: ProgressCallback | None = None,
    *,
    make: Callable[..., OperatorRewrite] | None = None,
    tasks: Tasks | None = None,
) -> int:
    """Rewrite all state in a different layout, in a separate batch.

    No query may use the checkpoint, and its newest batch must be committed. If the number of partitions
    changes, every key must be in the partition of its hash; otherwise its new partition cannot be determined.

    Cost: reads and writes all state once, at about 150,000 rows per second on one core, without Spark.
    RocksDB's stores need disk space; stores on the heap are held in memory, at most 32 at a time. If the old
    and the new number of partitions have no large common divisor, all state is read once for every 32 new
    partitions.

    Args:
        checkpoint: The checkpoint to modify.
        shape: The new layout of the state.
        folder: A working directory that does not exist yet.
        tell: The progress callback, called with stores done, total stores, and the current step.
        make: The factory of the writer of each operator; by default `OperatorRewrite`.
        tasks: Where stores are written, without `make`; by default in this process. An item is up to 32 new
            partitions of a store, with the old partitions that have their rows.

    Returns:
        The id of the new batch.

    Raises:
        Unsupported: The partition of an operator's keys cannot be computed, or the provider does not support
            the operator.
        Corrupt: A file is damaged.
    """
    folder.mkdir()
    before = read(checkpoint).confs
    # RocksDB would misread rows in an encoding that the heap's store ignored.
    ignored = ENCODING in before and provider_class(before) != ROCKSDB_PROVIDER
    confs = {ENCODING: _UNSAFE_ROW} if shape.rocksdb and ignored else {}
    confs |= {SHUFFLE_PARTITIONS: str(shape.partitions), PROVIDER: shape.provider}
    batch = begin(
        checkpoint, {**NO_NOTE, **(confs if shape.external is None else shape.external.noted(confs))}
    )
    states = {operator.operator_id: operator for operator in operator_states(checkpoint, batch.before)}
    made, at_ms = make or OperatorRewrite, now_ms()
    writers = [
        made(batch, operator, states[operator.operator_id], shape, folder, at_ms)
        for operator in batch.found.operators
    ]
    write_all(writers, batch, shape, at_ms, tasks, tell)
    note_partitions(checkpoint, batch.batch_id, shape.partitions)
    ids = {writer.operator.operator_id: writer.ids() for writer in writers}
    batch.commit(ids if shape.state_format > 1 else None)
    return batch.batch_id


def write_all(
    writers: Sequence[OperatorRewrite],
    batch: MaintenanceCommit,
    shape: StateShape,
    now_ms: int,
    tasks: Tasks | None,
    tell: ProgressCallback | None,
) -> None:
    """Write the state of operators, in this process or in tasks.

    Args:
        writers: The writers of the operators.
        batch: Their batch.
        shape: The new layout of the state.
        now_ms: The current time in epoch milliseconds.
        tasks: Where stores are written; None for this process.
        tell: The progress callback, called with stores done, total stores, and the current step.
    """
    if not writers:
        return
    if tasks is None:
        _write_here(writers, tell)
        return
    shared = SharedRewrite(SharedCheckpoint.of(batch.checkpoint, batch.before), shape, now_ms)
    parts = [
        (writer, part)
        for writer in writers
        for name in writer.operator.store_names
        for part in writer.parts(name, tasks.slots)
    ]
    written = tasks.run(partial(write_part, shared), [part for _, part in parts], tell, "writing state")
    for (writer, part), ids in zip(parts, written, strict=True):
        writer.note(part, ids)


def _write_here(writers: Sequence[OperatorRewrite], tell: ProgressCallback | None) -> None:
    total = sum(writer.operator.partitions * len(writer.operator.store_names) for writer in writers)
    done = 0
    for writer in writers:
        for name in writer.operator.store_names:
            if tell is not None:
                tell(done, total, "writing state")
            writer.store(name)
            done += writer.operator.partitions
    if tell is not None:
        tell(done, total, "writing state")


@dataclass(frozen=True, slots=True)
class RewritePart:
    """The stores that are written together: one name, in some of the new partitions.

    Attributes:
        operator_id: The operator.
        store: The name of the stores.
        families: The number of each column family; None for a store without families.
        most: The highest number of a family ever assigned.
        origins: The old partitions that have the rows.
        targets: The new partitions.
    """

    operator_id: int
    store: str
    families: Mapping[str, int] | None
    most: int
    origins: range
    targets: range


@dataclass(frozen=True, slots=True)
class SharedRewrite:
    """A rewrite that several machines share.

    Attributes:
        checkpoint: The checkpoint, with the batch before the rewrite.
        shape: The new layout of the state.
        now_ms: The current time in epoch milliseconds.
    """

    checkpoint: SharedCheckpoint
    shape: StateShape
    now_ms: int


def write_part(shared: SharedRewrite, part: RewritePart) -> tuple[str, ...]:
    """Write a part of a rewrite, and return the unique id of the file of each new partition.

    A task that failed may have written some files of the same names; they are replaced.

    Raises:
        Unavailable: This machine does not see the same checkpoint.
    """
    writer = _writer_of(shared, part.operator_id)
    with workplace(writer.checkpoint, "stores") as folder:
        return writer.write(part, folder, again=True)


@lru_cache(maxsize=8)
def _writer_of(shared: SharedRewrite, operator_id: int) -> OperatorRewrite:
    """Return the writer of an operator on this machine, once for several parts."""
    batch = opened_commit(shared.checkpoint)
    [operator] = [each for each in batch.found.operators if each.operator_id == operator_id]
    found = operator_states(batch.checkpoint, batch.before)
    [states] = [each for each in found if each.operator_id == operator_id]
    return OperatorRewrite(batch, operator, states, shared.shape, Path(), shared.now_ms)


def opened_commit(checkpoint: SharedCheckpoint) -> MaintenanceCommit:
    """Return the maintenance batch after a batch, as another machine has begun it.

    Raises:
        Unavailable: This machine does not see the same checkpoint.
    """
    storage, before = checkpoint.open()
    made = passing(storage)
    path = LogFile(Log.OFFSETS, before + 1).render()
    return MaintenanceCommit(made, read(made), before, parse_offsets(made.read(path), path))


def note_partitions(checkpoint: Storage, batch_id: int, partitions: int) -> None:
    """Write the number of partitions to the metadata of the operators.

    Spark's own repartitioning does not update metadata of version 1, so readers that use it, such as Spark's
    own, miss the new partitions.
    """
    for folder in operator_folders(checkpoint, batch_id):
        noted = read_operator(checkpoint, folder.metadata_path)
        if noted is None or all(store.partitions == partitions for store in noted.stores):
            continue
        version_batch = None if noted.version == 1 else batch_id
        path = OperatorMetadataFile(folder.operator_id, version_batch).render()
        if noted.version == 1:
            checkpoint.delete(layout.HadoopChecksumFile(path).render())
        checkpoint.write(path, noted.with_partitions(partitions).render(), replace=noted.version == 1)


def sweeps(before: int, after: int, workers: int = 1) -> Iterator[tuple[range, range]]:
    """Yield groups of old and new partitions such that no row moves between groups.

    A partition is a hash modulo the number of partitions. The old and the new partition of a key are equal
    modulo the greatest common divisor of both numbers. If a group has more new partitions than may be open at
    once, or there are fewer groups than workers, its old partitions are read several times.
    """
    step = math.gcd(before, after)
    at_once = min(OPEN_STORES, math.ceil(after / max(step, workers)))
    for first in range(step):
        targets = range(first, after, step)
        for start in range(0, len(targets), at_once):
            yield range(first, before, step), targets[start : start + at_once]


class OperatorRewrite:
    """A writer of one operator's state in a different layout.

    Args:
        batch: The maintenance batch that writes the state.
        operator: The operator in the old layout.
        states: The states of the operator in the old layout.
        shape: The new layout of the state.
        folder: A working directory.
        now_ms: The current time in epoch milliseconds.

    Attributes:
        checkpoint: The checkpoint.
        operator: The operator in the old layout.
    """

    def __init__(
        self,
        batch: MaintenanceCommit,
        operator: StatefulOperator,
        states: OperatorStates,
        shape: StateShape,
        folder: Path,
        now_ms: int,
    ) -> None:
        self._batch = batch
        self.checkpoint = batch.checkpoint
        self.operator = operator
        self._states = states
        self._folder = folder
        self._now_ms = now_ms
        self._partitions = 1 if operator.gathered else shape.partitions
        self._moves = self._partitions != operator.partitions
        values = replace(states.values, rocksdb=shape.rocksdb)
        self._form = StoreForm(
            values,
            codec_of(batch.offsets),
            shape.state_format > 1,
            states.snapshot_version(self.checkpoint) if shape.state_format > 1 else 1,
        )
        self._same_form = states.values == values
        self._placements: dict[StateName, KeyPartitions] = {}
        self._targets: dict[StateName, StateCodec] = {}
        self._ids: list[list[str]] = [[] for _ in range(self._partitions)]
        self._where = full(self.checkpoint.uri, f"{layout.STATE}/{operator.operator_id}")

    def store(self, name: str) -> None:
        """Write the store with this name in every partition."""
        for part in self.parts(name):
            self.note(part, self.write(part, self._folder))

    def parts(self, name: str, workers: int = 1) -> Iterator[RewritePart]:
        """Yield the parts of the store with this name, which workers can write in any order."""
        families = self._families(name)
        for origins, targets in sweeps(self.operator.partitions, self._partitions, workers):
            yield RewritePart(
                self.operator.operator_id, name, families.numbers, families.most, origins, targets
            )

    def write(self, part: RewritePart, folder: Path, *, again: bool = False) -> tuple[str, ...]:
        """Write a part, and return the unique id of the file of each new partition; "" without ids.

        Args:
            part: The part.
            folder: A working directory.
            again: Whether a former call may have written files of the part.
        """
        families = Families(part.families, part.most)
        buffer_bytes = min(_BUFFERS // len(part.targets), _MOST)
        with ExitStack() as stack:
            writers: dict[int, StoreWriter] = {}
            for to in part.targets:
                file = self._form.file(StoreId(part.operator_id, to, part.store), self._batch.version)
                if again:
                    self.checkpoint.delete(file.render())
                place = folder / file.store.folder.replace("/", "-")
                writers[to] = stack.enter_context(self._writer(file, place, families, buffer_bytes))
            for partition in part.origins:
                self._copy(StoreId(part.operator_id, partition, part.store), families, writers)
            return tuple(writer.finish().unique_id or "" for writer in writers.values())

    def note(self, part: RewritePart, ids: Sequence[str]) -> None:
        """Note the ids of a part's files; the stores of a partition come in the order of their names."""
        for to, unique_id in zip(part.targets, ids, strict=True):
            self._ids[to].append(unique_id)

    def ids(self) -> tuple[tuple[str, ...], ...]:
        """Return the unique ids of the written files, by partition and store."""
        return tuple(tuple(stores) for stores in self._ids)

    def _copy(self, store: StoreId, families: Families, writers: Mapping[int, StoreWriter]) -> None:
        """Write the rows of an old partition that belong to one of the open new partitions."""
        as_stored = self._same_form and self._base_families(store) == families
        for state, pairs in store_chunks(self.checkpoint, self._states, store):
            placed = self._placed(state, store, pairs) if self._moves else {store.partition: pairs}
            for to in placed.keys() & writers.keys():
                self._add(writers[to], state, placed[to], as_stored=as_stored)

    def _writer(self, file: StoreFile, folder: Path, families: Families, buffer_bytes: int) -> StoreWriter:
        return StoreWriter(
            self.checkpoint,
            file,
            self._form,
            folder,
            families=families,
            now_ms=self._now_ms,
            buffer_bytes=buffer_bytes,
        )

    def _base_families(self, store: StoreId) -> Families:
        return base_families(self.checkpoint, self._states, store)

    def _families(self, name: str) -> Families:
        """Return the numbers of the column families, from the first partition that has some."""
        known = {codec.name.family for codec in self._states.declared_codecs() if codec.name.store == name}
        for partition in range(self.operator.partitions):
            given = self._base_families(StoreId(self.operator.operator_id, partition, name))
            if given.numbers is None:
                return given
            if given.numbers:
                return given.with_names(known)
        return Families({}).with_names(known)

    def _placed(self, state: StateCodec, store: StoreId, pairs: Pairs) -> dict[int, Pairs]:
        """Return the rows by their new partition."""
        placement = self._placements.get(state.name)
        if placement is None:
            placement = KeyPartitions(self.operator, state, self._where)
            self._placements[state.name] = placement
        hashes = placement.hashes([key for key, _ in pairs])
        places = (value % self.operator.partitions for value in hashes)
        require_in_partition(places, store.partition, full(self.checkpoint.uri, store.folder))
        placed: dict[int, Pairs] = {}
        for value, pair in zip(hashes, pairs, strict=True):
            placed.setdefault(value % self._partitions, []).append(pair)
        return placed

    def _add(self, writer: StoreWriter, state: StateCodec, pairs: Pairs, *, as_stored: bool) -> None:
        family = state.name.family
        if as_stored:
            writer.add_stored(pairs, family)
            return
        keys = [key for key, _ in pairs]
        if self._form.values.rocksdb != self._states.values.rocksdb:
            rows = [state.key_row(key) for key in keys]
            keys = [self._target(state).stored_key(row) for row in rows]
        try:
            found = [state.values.rows(value, state.where) for _, value in pairs]
        except (struct.error, ValueError, IndexError) as error:
            raise Corrupt(
                "a row of state cannot be decoded",
                code="HF-E6001",
                where=self._where,
                found=str(error),
                hint="find the batches that can be restored with `holdfast checkpoint verify CHECKPOINT`",
            ) from error
        if not any(is_list for _, is_list in found):
            writer.add(keys, [rows[0] for rows, _ in found], family)
            return
        lists = [(key, rows) for key, (rows, is_list) in zip(keys, found, strict=True) if is_list]
        writer.add_lists([key for key, _ in lists], [rows for _, rows in lists], family)
        single = [(key, rows[0]) for key, (rows, is_list) in zip(keys, found, strict=True) if not is_list]
        writer.add([key for key, _ in single], [row for _, row in single], family)

    def _target(self, state: StateCodec) -> StateCodec:
        """Return the encoder of keys in the target layout."""
        found = self._targets.get(state.name)
        if found is None:
            values = self._form.values
            found = StateCodec(state.name, values, state.schema, state.key_form, state.where)
            self._targets[state.name] = found
        return found
