"""The conversion of the rows of operators to those of new code, part by part: the stores of some partitions.

Parts can be converted by several machines, in any order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from holdfast import layout
from holdfast.changes.column_changes import OperatorConversion, converted_fields
from holdfast.changes.join_columns import JoinConversion
from holdfast.changes.rewriting import OPEN_STORES, opened_commit
from holdfast.changes.working_copy import MaintenanceCommit
from holdfast.checkpoints.state.contents import ContentSum
from holdfast.checkpoints.state.key_partition import KeyPartitions, require_in_partition
from holdfast.checkpoints.state.rocksdb import NO_FAMILIES, Families, Pairs
from holdfast.checkpoints.state.rows import store_chunks
from holdfast.checkpoints.state.states import OperatorStates, StateCodec, operator_states
from holdfast.errors import Unsupported
from holdfast.formats.rows.unsafe_row import RowCodec
from holdfast.layout import DEFAULT_STORE, StoreId
from holdfast.savepoints.spread import SharedCheckpoint
from holdfast.savepoints.stores import StoreForm, StoreWriter
from holdfast.savepoints.view import workplace
from holdfast.storage.port import Storage, full

_BUFFER_BYTES: Final = 8 << 20

_Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ConvertedPart:
    """The stores that are written together: one name, in some partitions of an operator of the new code.

    Attributes:
        operator_id: The operator of the new code.
        store: The name of the stores.
        targets: The partitions.
        rows: The conversion of the rows; None if there are no rows.
    """

    operator_id: int
    store: str
    targets: range
    rows: OperatorConversion | JoinConversion | None


@dataclass(slots=True)
class Written:
    """The record of the rows written for one operator, or for a part of it.

    Attributes:
        ids: The unique ids of the operator's files, by partition and store; of a part, one for each target.
        sums: The sums of the written rows, if the operator has one state.
        states: The sums of the written rows by the label of the state, if it has several.
        merged: The number of rows with the key of a row that was converted before them.
        example: A key that several rows have, described.
    """

    ids: tuple[tuple[str, ...], ...] = ()
    sums: ContentSum = field(default_factory=ContentSum)
    states: dict[str, ContentSum] = field(default_factory=dict)
    merged: int = 0
    example: str = ""


def merge_parts(parts: Sequence[tuple[ConvertedPart, Written]]) -> Written:
    """Return the record of an operator from those of its parts, which come by store."""
    whole, ids = Written(), dict[int, list[str]]()
    for part, written in parts:
        whole.sums.merge(written.sums)
        for label, sums in written.states.items():
            whole.states.setdefault(label, ContentSum()).merge(sums)
        whole.merged += written.merged
        whole.example = whole.example or written.example
        for to, of_target in zip(part.targets, written.ids, strict=True):
            ids.setdefault(to, []).extend(of_target)
    whole.ids = tuple(tuple(stores) for _, stores in sorted(ids.items()))
    return whole


@dataclass(frozen=True, slots=True)
class SharedConversion:
    """A conversion that several machines share.

    Attributes:
        old: The checkpoint with the saved state.
        made: The checkpoint that gets the converted state, with the batch before the conversion.
        state_format: The state-checkpoint format.
        now_ms: The current time in epoch milliseconds.
        where: The source of the change, for messages.
    """

    old: SharedCheckpoint
    made: SharedCheckpoint
    state_format: int
    now_ms: int
    where: str


def convert_part(shared: SharedConversion, part: ConvertedPart) -> Written:
    """Convert a part, in a task that may run again; see `StateConverter.write`.

    Raises:
        Unavailable: This machine does not see the same checkpoints.
    """
    converter = _converter_of(shared)
    with workplace(converter.checkpoint, "stores") as folder:
        return converter.write(part, folder, again=True)


@lru_cache(maxsize=2)
def _converter_of(shared: SharedConversion) -> StateConverter:
    """Return the converter of this machine, once for several parts."""
    old, batch_id = shared.old.open()
    return StateConverter(
        old, batch_id, opened_commit(shared.made), shared.state_format, shared.now_ms, shared.where
    )


class StateConverter:
    """A writer of the state of new code, from the saved state in a different checkpoint.

    Args:
        old: The checkpoint with the saved state.
        batch_id: Its batch.
        batch: The maintenance batch that writes the state, after the metadata of the new operators.
        state_format: The state-checkpoint format.
        now_ms: The current time in epoch milliseconds.
        where: The source of the change, for messages.

    Attributes:
        checkpoint: The checkpoint that gets the state.
    """

    def __init__(
        self,
        old: Storage,
        batch_id: int,
        batch: MaintenanceCommit,
        state_format: int,
        now_ms: int,
        where: str,
    ) -> None:
        self.checkpoint = batch.checkpoint
        self._old = old
        self._batch = batch
        self._now_ms = now_ms
        self._where = where
        self._saved = {each.operator_id: each for each in operator_states(old, batch_id)}
        self._states = {each.operator_id: each for each in operator_states(batch.checkpoint, batch.before)}
        self._has_ids = state_format > 1
        versions = (each.written_snapshot_version(old) or 1 for each in self._saved.values())
        self._snapshots = max(versions, default=1) if self._has_ids else 1

    def parts(
        self, operator_id: int, rows: OperatorConversion | JoinConversion | None, workers: int = 1
    ) -> Iterator[ConvertedPart]:
        """Yield the parts of an operator, which workers can write in any order."""
        states = self._states[operator_id]
        at_once = min(OPEN_STORES, math.ceil(states.partitions / workers))
        for name in states.store_names:
            for start in range(0, states.partitions, at_once):
                targets = range(start, min(start + at_once, states.partitions))
                yield ConvertedPart(operator_id, name, targets, rows)

    def write(self, part: ConvertedPart, folder: Path, *, again: bool = False) -> Written:
        """Write a part.

        Args:
            part: The part.
            folder: A working directory.
            again: Whether a former call may have written files of the part.

        Raises:
            Corrupt: A row is damaged.
            Unsupported: A row cannot be converted.
        """
        states = self._states[part.operator_id]
        form = StoreForm(states.values, states.codec, self._has_ids, self._snapshots)
        families = NO_FAMILIES
        if states.has_families(part.store):
            names = (
                codec.name.family for codec in states.declared_codecs() if codec.name.store == part.store
            )
            families = Families({}).with_names(names)
        made = Written()
        with ExitStack() as stack:
            writers: dict[int, StoreWriter] = {}
            for to in part.targets:
                file = form.file(StoreId(part.operator_id, to, part.store), self._batch.version)
                if again:
                    self.checkpoint.delete(file.render())
                writer = StoreWriter(
                    self.checkpoint,
                    file,
                    form,
                    folder / file.store.folder.replace("/", "-"),
                    families=families,
                    now_ms=self._now_ms,
                    buffer_bytes=_BUFFER_BYTES,
                )
                writers[to] = stack.enter_context(writer)
            if isinstance(part.rows, JoinConversion):
                self._convert_join(part.rows, states, part.store, writers, made)
            elif part.rows is not None:
                self._convert(part.rows, states, writers, made)
            made.ids = tuple((writer.finish().unique_id or "",) for writer in writers.values())
        return made

    def _convert_join(
        self,
        change: JoinConversion,
        states: OperatorStates,
        store: str,
        writers: Mapping[int, StoreWriter],
        made: Written,
    ) -> None:
        """Convert the rows of one store of a join, each in the partition that it is in."""
        saved = self._saved[change.old.number]
        if saved.partitions != states.partitions:
            raise Unsupported(
                "the number of partitions of a join cannot change together with its columns",
                code="HF-E7140",
                where=self._where,
                found=f"{saved.partitions} partitions, and {states.partitions} in the new code",
                hint="change the partitions of the new checkpoint with `holdfast rescale`",
            )
        targets = {codec.name.label: codec for codec in states.declared_codecs() if codec.name.store == store}
        origins = {codec.name.store for codec in saved.declared_codecs() if codec.name.label in targets}
        for partition, writer in writers.items():
            for origin in sorted(origins):
                for codec, pairs in store_chunks(
                    self._old, saved, StoreId(saved.operator_id, partition, origin)
                ):
                    target = targets.get(codec.name.label)
                    if target is None:
                        continue
                    rows = change.pairs(codec, target, pairs)
                    sums = made.states.setdefault(target.name.label, ContentSum())
                    sums.add([key for key, _ in rows], [row for _, row in rows])
                    keys = [target.stored_key(key) for key, _ in rows]
                    writer.add(keys, [row for _, row in rows], target.name.family)

    def _convert(
        self,
        change: OperatorConversion,
        states: OperatorStates,
        writers: Mapping[int, StoreWriter],
        made: Written,
    ) -> None:
        """Convert the rows of an operator, and write those that belong to some of the new partitions."""
        saved = self._saved[change.old.number]
        codec = saved.codec_of(DEFAULT_STORE, DEFAULT_STORE)
        conversion = RowConversion(change, codec)
        target = states.codec_of(DEFAULT_STORE, DEFAULT_STORE)
        where = full(self._where, f"{layout.STATE}/{saved.operator_id}")
        moves = not (change.key_stays and saved.partitions == states.partitions)
        before = KeyPartitions(saved, codec, where) if moves else None
        after = KeyPartitions(states, target, where) if moves else None
        held: dict[bytes, tuple[int, bytes]] = {}
        for partition in range(saved.partitions):
            if not moves and partition not in writers:
                continue
            for _, pairs in store_chunks(self._old, saved, StoreId(saved.operator_id, partition)):
                rows = list(conversion.rows(pairs))
                places = [partition] * len(rows)
                if before is not None and after is not None:
                    # The new keys are placed by hash, so the saved ones must have been, too.
                    found = (value % saved.partitions for value in before.hashes([key for key, _ in pairs]))
                    require_in_partition(found, partition, where)
                    hashes = after.hashes([target.stored_key(key) for key, _ in rows])
                    places = [value % states.partitions for value in hashes]
                placed = [
                    (to, key, row) for to, (key, row) in zip(places, rows, strict=True) if to in writers
                ]
                if not change.drops_keys:
                    _write(placed, writers, target, made)
                    continue
                for to, key, row in placed:
                    if key not in held:
                        held[key] = to, row
                        continue
                    made.merged += 1
                    made.example = made.example or conversion.describe_key(key)
                    if change.merges:
                        held[key] = to, conversion.merged(key, held[key][1], row)
        _write([(to, key, row) for key, (to, row) in held.items()], writers, target, made)


def _write(
    placed: Sequence[tuple[int, bytes, bytes]],
    writers: Mapping[int, StoreWriter],
    target: StateCodec,
    made: Written,
) -> None:
    """Write rows, each given with its partition."""
    if not placed:
        return
    made.sums.add([key for _, key, _ in placed], [row for _, _, row in placed])
    by_partition: dict[int, tuple[list[bytes], list[bytes]]] = {}
    for to, key, row in placed:
        keys, rows = by_partition.setdefault(to, ([], []))
        keys.append(target.stored_key(key))
        rows.append(row)
    for to, (keys, rows) in by_partition.items():
        writers[to].add(keys, rows)


class RowConversion:
    """A converter of one operator's rows.

    Cost: about a microsecond for each column of the old row and for each column of the new row.

    Args:
        change: The conversion of the operator's columns.
        codec: The codec of the saved rows.
    """

    def __init__(self, change: OperatorConversion, codec: StateCodec) -> None:
        self._change = change
        self._codec = codec
        self._keys = RowCodec(change.new.key_type)
        self._values = RowCodec(change.new.value_type)
        self._copied: Final = [
            (column.name, None if place is None else change.new.keys[place].name)
            for column, place in zip(change.new.copied, change.new.copies, strict=True)
        ]

    def rows(self, pairs: Pairs) -> Iterator[tuple[bytes, bytes]]:
        """Yield the new key and value of each row, as UnsafeRows.

        Args:
            pairs: The stored rows.

        Raises:
            Corrupt: A row is damaged.
            Unsupported: A row has a null in a column that is not nullable in the new code.
        """
        codec = self._codec
        for stored_key, stored_value in pairs:
            row = codec.single_row(stored_value)
            key_row = codec.key_row(stored_key)
            if self._change.rows_stay:
                yield key_row, row
                continue
            old = codec.value_values(row)
            key = converted_fields(self._change.keys, codec.key_values(key_row), codec.where)
            value = converted_fields(self._change.values, old, codec.where)
            yield self._keys.encode(key), self._encoded(key, value, old)

    def merged(self, key_row: bytes, one: bytes, other: bytes) -> bytes:
        """Merge the values of two rows with the same key; every column must have a merge function."""
        first, second = (self._values.decode(row, self._codec.where) for row in (one, other))
        value = {
            source.column.name: source.merge(first[source.column.name], second[source.column.name])
            for source in self._change.values
            if source.merge is not None
        }
        return self._encoded(self._keys.decode(key_row, self._codec.where), value, {})

    def describe_key(self, key_row: bytes) -> str:
        """Return a description of a key with the labels and values of its columns."""
        values = self._keys.decode(key_row, self._codec.where)
        labels = {column.name: column.label for column in self._change.new.keys}
        return ", ".join(f"{labels[name]} {value!r}" for name, value in values.items()) or "the single key"

    def _encoded(self, key: _Values, value: _Values, old: _Values) -> bytes:
        for name, place in self._copied:
            window = self._change.window
            value[name] = (
                key[place] if place is not None else None if window is None else old.get(window.old or "")
            )
        return self._values.encode(value)
