"""Another number of partitions for state of the memory provider, which Spark's own repartitioning refuses.

The rows stay byte for byte as they are; only the files that they are in change. What is done is a batch of
its own that reads nothing, as Spark does it for RocksDB: the state of every partition is written whole, under
the next version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from holdfast import layout
from holdfast.checkpoints.reading import codec_of, read
from holdfast.checkpoints.rows import state_chunks
from holdfast.checkpoints.states import StateCodec
from holdfast.checkpoints.values import Operator
from holdfast.errors import Corrupt, NotFound, Unsupported
from holdfast.formats.commit_log import parse_commit
from holdfast.formats.compression import compressed
from holdfast.formats.murmur3 import partition_of
from holdfast.formats.offset_log import SHUFFLE_PARTITIONS, OffsetLog, parse_offsets
from holdfast.formats.operator_metadata import parse_operator
from holdfast.formats.records import Change, Record, render_records
from holdfast.layout import Kind, Log, LogFile, OperatorMetadataFile, StoreFile, StoreId
from holdfast.storage.port import Storage, full

# Operators whose rows go by their whole key.
_BY_KEY: Final = frozenset(
    {
        "stateStoreSave",
        "dedupe",
        "dedupeWithinWatermark",
        "flatMapGroupsWithState",
        "applyInPandasWithState",
    }
)
_SESSIONS: Final = "sessionWindowStateStoreSaveExec"
_JOIN: Final = "symmetricHashJoin"
_WITH_INDEX: Final = "-keyWithIndexToValue"


def rewrite(checkpoint: Storage, partitions: int) -> int:
    """Bring all state into so many partitions, in a batch of its own.

    No query may use the checkpoint meanwhile, and its newest batch has to be committed. Before anything is
    written, every key has to be in the partition that Spark's hash gives it now: else its place is decided by
    something that is not known here.

    Cost: all state is read into memory, operator by operator, and written once. No Spark.

    Args:
        checkpoint: The checkpoint; it is changed.
        partitions: How many.

    Returns:
        The batch.

    Raises:
        Unsupported: An operator, or the type of a key, whose partition is not known here.
        Corrupt: A file is damaged.
    """
    found = read(checkpoint)
    if found.batch_id is None:
        raise NotFound("no batch is committed", where=checkpoint.uri)
    path = LogFile(Log.OFFSETS, found.batch_id).render()
    offsets = parse_offsets(checkpoint.read(path), path)
    batch_id = found.batch_id + 1
    checkpoint.write(LogFile(Log.OFFSETS, batch_id).render(), _fixed_to(offsets, partitions).render())
    for operator in found.operators:
        _Rewriting(checkpoint, operator, codec_of(offsets)).run(found.batch_id, partitions)
    path = LogFile(Log.COMMITS, found.batch_id).render()
    checkpoint.write(
        LogFile(Log.COMMITS, batch_id).render(), parse_commit(checkpoint.read(path), path).render()
    )
    return batch_id


def _fixed_to(offsets: OffsetLog, partitions: int) -> OffsetLog:
    confs = {**offsets.confs, SHUFFLE_PARTITIONS: str(partitions)}
    return OffsetLog(offsets.version, {**(offsets.fields or {}), "conf": confs}, offsets.offsets)


class _Rewriting:
    """One operator's state."""

    def __init__(self, checkpoint: Storage, operator: Operator, codec: str) -> None:
        self._checkpoint = checkpoint
        self._operator = operator
        self._codec = codec
        self._where = full(checkpoint.uri, f"{layout.STATE}/{operator.operator_id}")

    def run(self, batch_id: int, partitions: int) -> None:
        """Write what the operator has at a batch as the state of the next."""
        number, names = self._operator.operator_id, self._operator.store_names
        parts: dict[StoreId, list[Record]] = {
            StoreId(number, partition, name): []
            for partition in range(1 if self._operator.gathered else partitions)
            for name in names
        }
        for state, partition, rows in state_chunks(self._checkpoint, batch_id, operator_id=number):
            fields, hashed = self._key(state)
            for key, value in rows:
                place = self._place(key, fields, hashed, self._operator.partitions)
                if place != partition:
                    raise self._elsewhere(StoreId(number, partition, state.name.store), place)
                to = StoreId(number, self._place(key, fields, hashed, partitions), state.name.store)
                parts[to].append(Record(Change.PUT, key, value))
        for store, records in parts.items():
            file = StoreFile(store, batch_id + 2, Kind.SNAPSHOT, None)
            self._checkpoint.write(file.render(), compressed(render_records(records), self._codec))

    def _place(self, key: bytes, fields: list[dict[str, Any]], hashed: int, partitions: int) -> int:
        # What goes by no key at all is gathered in one task.
        return partition_of(key, fields, hashed, partitions, self._where) if hashed else 0

    def _key(self, state: StateCodec) -> tuple[list[dict[str, Any]], int]:
        """The fields of a state's keys, and how many of them decide the partition."""
        if state.schema is None:
            raise Corrupt("a state has no schema", where=self._where, found=state.name.label)
        fields = json.loads(state.schema.key_schema)["fields"]
        name = self._operator.name
        if name in _BY_KEY:
            return fields, len(fields)
        if name == _JOIN:
            return fields, len(fields) - (1 if state.name.store.endswith(_WITH_INDEX) else 0)
        if name == _SESSIONS:
            return fields, self._prefix(state.name.store)
        if self._operator.gathered:
            return fields, 0
        raise Unsupported(
            "which partition a key of this operator belongs to is not known here",
            where=self._where,
            found=name or "an operator without a name",
            hint="move the query to RocksDB, for which Spark itself knows",
        )

    def _prefix(self, store: str) -> int:
        path = OperatorMetadataFile(self._operator.operator_id).render()
        fields: Mapping[str, Any] = parse_operator(self._checkpoint.read(path), path).fields
        info = next(each for each in fields["stateStoreInfo"] if each["storeName"] == store)
        return int(info["numColsPrefixKey"])

    def _elsewhere(self, store: StoreId, place: int) -> Corrupt:
        return Corrupt(
            "a key is not in the partition that Spark's hash gives it",
            where=full(self._checkpoint.uri, store.folder),
            found=f"a key of partition {place}",
            expected=f"only keys of partition {store.partition}",
            hint="`holdfast checkpoint verify` tells whether files were exchanged",
        )
