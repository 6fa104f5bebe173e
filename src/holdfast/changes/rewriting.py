"""Rewrite all state of a checkpoint: with a different provider, number of partitions, or format.

The rows stay the same; only their framing and their files change. The rewrite is a separate batch that reads
nothing: the state of every partition is written whole, under the next version.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from holdfast import layout
from holdfast.changes.working_copy import MaintenanceCommit, begin
from holdfast.checkpoints.checkpoint import ProgressCallback, StatefulOperator, codec_of, read
from holdfast.checkpoints.logs import operator_folders, read_operator
from holdfast.checkpoints.state.key_partition import KeyPartitions, in_other_partition
from holdfast.checkpoints.state.rocksdb import Families, Pairs
from holdfast.checkpoints.state.rows import base_families, store_chunks
from holdfast.checkpoints.state.states import OperatorStates, StateCodec, StateName, operator_states
from holdfast.clock import now_ms
from holdfast.config.spark_defaults import MEMORY_PROVIDER, ROCKSDB_PROVIDER
from holdfast.errors import Corrupt
from holdfast.formats.logs.batch_logs import ENCODING, PROVIDER, SHUFFLE_PARTITIONS
from holdfast.formats.providers import NO_NOTE, ExternalState, provider_class
from holdfast.json_shapes import NOT_IN_JSON, in_json
from holdfast.layout import OperatorMetadataFile, StoreId
from holdfast.savepoints.stores import StoreForm, StoreWriter
from holdfast.storage.port import Storage, full

# How many stores are written at once: each of RocksDB's has about six files open.
_OPEN: Final = 32
# How much all of them may hold in memory together, and each at most.
_BUFFERS: Final = 256 << 20
_MOST: Final = 64 << 20
_UNSAFE_ROW: Final = "unsaferow"


ROCKSDB: Final = "rocksdb"
MEMORY: Final = "memory"


@dataclass(frozen=True, slots=True)
class StateShape:
    """The layout of a checkpoint's state.

    Attributes:
        rocksdb: True for RocksDB, False for the heap.
        partitions: The number of partitions; operators without a key have one nevertheless.
        state_format: The state-checkpoint format, 1 or 2.
        external: The database that the state is moved to in the end, from files in the heap store's format.
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
        """The store that holds it: `rocksdb`, `memory`, or the name of a database such as `redis`."""
        if self.external is not None:
            return self.external.kind.lower()
        return ROCKSDB if self.rocksdb else MEMORY

    @property
    @in_json
    def database(self) -> str | None:
        """The database that holds it; None if files do."""
        return None if self.external is None else self.external.database


def rewrite(
    checkpoint: Storage, shape: StateShape, folder: Path, tell: ProgressCallback | None = None
) -> int:
    """Rewrite all state in a different layout, in a separate batch.

    No query may use the checkpoint meanwhile, and its newest batch has to be committed. If the number of
    partitions changes, every key has to be in the partition of its hash now: else its partition is decided by
    something unknown.

    Cost: all state is read and written once, about 150,000 rows a second on one core; RocksDB's stores need
    disk space, the heap's are held in memory, at most 32 at a time. If the old and the new number of
    partitions have no large common divisor, it is read once for every 32 new partitions. No Spark.

    Args:
        checkpoint: The checkpoint; it is changed.
        shape: The new layout of its state.
        folder: A working directory that does not exist yet.
        tell: Called with stores done, stores in all, and the current step.

    Returns:
        The batch.

    Raises:
        Unsupported: The partition of an operator's keys cannot be computed, or the provider cannot hold the
            operator.
        Corrupt: A file is damaged.
    """
    folder.mkdir()
    before = read(checkpoint).confs
    # RocksDB would take from an encoding that the heap's store has ignored what its rows are.
    ignored = ENCODING in before and provider_class(before) != ROCKSDB_PROVIDER
    confs = {ENCODING: _UNSAFE_ROW} if shape.rocksdb and ignored else {}
    confs |= {SHUFFLE_PARTITIONS: str(shape.partitions), PROVIDER: shape.provider}
    batch = begin(
        checkpoint, {**NO_NOTE, **(confs if shape.external is None else shape.external.noted(confs))}
    )
    states = {operator.operator_id: operator for operator in operator_states(checkpoint, batch.before)}
    total = sum(operator.partitions * len(operator.store_names) for operator in states.values())
    ids: dict[int, tuple[tuple[str, ...], ...]] = {}
    done = 0
    for operator in batch.found.operators:
        work = OperatorRewrite(batch, operator, states[operator.operator_id], shape, folder, now_ms())
        for name in operator.store_names:
            if tell is not None:
                tell(done, total, "writing state")
            work.store(name)
            done += operator.partitions
        ids[operator.operator_id] = work.ids()
    note_partitions(checkpoint, batch.batch_id, shape.partitions)
    batch.commit(ids if shape.state_format > 1 else None)
    if tell is not None:
        tell(done, total, "writing state")
    return batch.batch_id


def note_partitions(checkpoint: Storage, batch_id: int, partitions: int) -> None:
    """Write the number of partitions to the metadata of the operators.

    Spark's own repartitioning does not update metadata of version 1; readers that use it, such as Spark's
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


def sweeps(before: int, after: int) -> Iterator[tuple[range, range]]:
    """Yield groups of old and new partitions, such that no row moves from one group to another.

    A partition is a hash modulo their number. A key's old and new partition are equal modulo the greatest
    common divisor of both numbers. If a group has more new partitions than may be open at once, its old ones
    are read several times.
    """
    step = math.gcd(before, after)
    for first in range(step):
        targets = range(first, after, step)
        for start in range(0, len(targets), _OPEN):
            yield range(first, before, step), targets[start : start + _OPEN]


class OperatorRewrite:
    """A rewrite of one operator's state.

    Args:
        batch: The batch that writes it.
        operator: The operator before.
        states: Its states before.
        shape: The new layout of its state.
        folder: A working directory.
        now_ms: The time, in epoch milliseconds.
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
        self._checkpoint = batch.checkpoint
        self._operator = operator
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
            states.snapshot_version(self._checkpoint) if shape.state_format > 1 else 1,
        )
        self._same_form = states.values == values
        self._placements: dict[StateName, KeyPartitions] = {}
        self._targets: dict[StateName, StateCodec] = {}
        self._ids: list[list[str]] = [[] for _ in range(self._partitions)]
        self._where = full(self._checkpoint.uri, f"{layout.STATE}/{operator.operator_id}")

    def store(self, name: str) -> None:
        """Write one store of every partition."""
        families = self._families(name)
        for origins, targets in sweeps(self._operator.partitions, self._partitions):
            buffer_bytes = min(_BUFFERS // len(targets), _MOST)
            with ExitStack() as stack:
                writers = {
                    to: stack.enter_context(self._writer(name, to, families, buffer_bytes)) for to in targets
                }
                for partition in origins:
                    self._copy(StoreId(self._operator.operator_id, partition, name), families, writers)
                for to, writer in writers.items():
                    self._ids[to].append(writer.finish().unique_id or "")

    def ids(self) -> tuple[tuple[str, ...], ...]:
        """Return the unique ids of the written files, by partition and store."""
        return tuple(tuple(stores) for stores in self._ids)

    def _copy(self, store: StoreId, families: Families, writers: Mapping[int, StoreWriter]) -> None:
        """Write the rows of a partition that belong to one of these writers."""
        as_stored = self._same_form and self._base_families(store) == families
        for state, pairs in store_chunks(self._checkpoint, self._states, store):
            placed = self._placed(state, store, pairs) if self._moves else {store.partition: pairs}
            for to in placed.keys() & writers.keys():
                self._add(writers[to], state, placed[to], as_stored=as_stored)

    def _writer(self, name: str, partition: int, families: Families, buffer_bytes: int) -> StoreWriter:
        store = StoreId(self._operator.operator_id, partition, name)
        return StoreWriter(
            self._checkpoint,
            self._form.file(store, self._batch.version),
            self._form,
            self._folder / store.folder.replace("/", "-"),
            families=families,
            now_ms=self._now_ms,
            buffer_bytes=buffer_bytes,
        )

    def _base_families(self, store: StoreId) -> Families:
        return base_families(self._checkpoint, self._states, store)

    def _families(self, name: str) -> Families:
        """Return numbers for the column families, as in the first partition that has some."""
        known = {codec.name.family for codec in self._states.declared_codecs() if codec.name.store == name}
        for partition in range(self._operator.partitions):
            given = self._base_families(StoreId(self._operator.operator_id, partition, name))
            if given.numbers is None:
                return given
            if given.numbers:
                return given.with_names(known)
        return Families({}).with_names(known)

    def _placed(self, state: StateCodec, store: StoreId, pairs: Pairs) -> dict[int, Pairs]:
        """Return the rows by their new partition."""
        placement = self._placements.get(state.name)
        if placement is None:
            placement = KeyPartitions(self._operator, state, self._where)
            self._placements[state.name] = placement
        placed: dict[int, Pairs] = {}
        for value, pair in zip(placement.hashes([key for key, _ in pairs]), pairs, strict=True):
            if value % self._operator.partitions != store.partition:
                where = full(self._checkpoint.uri, store.folder)
                raise in_other_partition(where, store.partition, value % self._operator.partitions)
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
                hint="find the batches that can be restored with `holdfast checkpoint verify`",
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
