"""Events packed by key group, in the tasks before the shuffle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from holdfast.worker.arrays import numbers, starts_of
from holdfast.worker.interface import Moment
from holdfast.worker.lane import HASH, NOW, PACK_BYTES, conform, packet_columns, packets_of
from holdfast.worker.runtime.features.instances import INSTANCE
from holdfast.worker.state.group_numbers import EVEN, Numbering
from holdfast.worker.state.key_group import group_of, numbers_of
from holdfast.worker.task_facts import batch_number, partition_id

if TYPE_CHECKING:
    from holdfast.worker.interface import Placing
    from holdfast.worker.runtime.features.instances import Instances
    from holdfast.worker.runtime.features.partial_aggregates import Splitter


class Packer:
    """Packs one stream's events by key group, in the tasks before the shuffle.

    Args:
        schema: The stream's columns.
        key_groups: How many groups there are.
        stream: The stream's number.
        keys: The key columns.
        placement: What decides a key's group, where its hash does not.
        splitter: What takes the events of hot keys together; its parts bear the number after the stream's.
        instances: The instances whose state it is; those to be touched bear that number.
        numbering: How the groups are stored.
    """

    def __init__(
        self,
        schema: pa.Schema,
        key_groups: int,
        stream: int,
        *,
        keys: tuple[str, ...] = (),
        placement: Placing | None = None,
        splitter: Splitter | None = None,
        instances: Instances | None = None,
        numbering: Numbering = EVEN,
    ) -> None:
        self._schema = schema.append(pa.field(HASH, pa.int64()))
        if splitter is not None and splitter.timed:
            self._schema = self._schema.append(pa.field(NOW, pa.int64()))
        self._key_groups = key_groups
        self._stream = stream
        self._keys = keys
        self._placement = placement
        self._splitter = splitter
        self._instances = instances
        self._numbering = numbering
        self._dealt_rows = 0

    @property
    def columns(self) -> str:
        """The columns of its packets as Spark is told them."""
        return packet_columns(self._numbering)

    @property
    def timed(self) -> bool:
        """Whether events come with the batch's time."""
        return self._splitter is not None and self._splitter.timed

    @property
    def of_instances(self) -> bool:
        """Whether the state is of instances, and not of keys."""
        return self._instances is not None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Turn the batches of a task into packets."""
        self._dealt_rows = 0
        part = partition_id() or 0
        if self._instances is not None and part == 0:
            yield self.touching()
        waiting: list[pa.RecordBatch] = []
        size = seq = 0
        for batch in batches:
            if batch.num_rows:
                waiting.append(batch)
                size += batch.nbytes
            if size >= PACK_BYTES:
                yield from self.packets(waiting, part, seq)
                waiting, size, seq = [], 0, seq + 1
        if waiting:
            yield from self.packets(waiting, part, seq)

    def packets(self, batches: Sequence[pa.RecordBatch], part: int, seq: int) -> Iterator[pa.RecordBatch]:
        """One packet for each key group in these batches, and one for the parts of its hot keys."""
        batch = conform(pa.concat_batches(batches), self._schema)
        if self._instances is not None:
            batch = self._dealt(batch, self._instances.count, part)
        if self._placement is not None:
            batch = self._placed(batch)
        if self._splitter is not None:
            batch, parts = self._split(self._splitter, batch)
            if parts is not None:
                yield self._packed(parts, self._stream + 1, part, seq)
        if batch.num_rows:
            yield self._packed(batch, self._stream, part, seq)

    def touching(self) -> pa.RecordBatch:
        """Packets that touch instances, whether there are events for them or not."""
        schema = pa.schema([self._schema.field(INSTANCE), self._schema.field(HASH)])
        count = self._instances.touched() if self._instances is not None else 0
        numbered = [pa.array(range(count), schema.field(0).type), pa.array([0] * count, pa.int64())]
        batch = self._placed(pa.RecordBatch.from_arrays(numbered, schema=schema))
        return self._packed(batch, self._stream + 1, 0, 0)

    def _dealt(self, batch: pa.RecordBatch, count: int, part: int) -> pa.RecordBatch:
        """The same with an instance for each row; tasks begin with different ones."""
        at = batch.schema.get_field_index(INSTANCE)
        if not batch.column(at).null_count:
            return batch
        turn = np.arange(part + self._dealt_rows, part + self._dealt_rows + batch.num_rows) % count
        self._dealt_rows += batch.num_rows
        return batch.set_column(at, batch.schema.field(at), pa.array(turn.astype(np.int32)))

    def _placed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same with hashes that lie in the groups where the keys are to be."""
        at = batch.schema.get_field_index(HASH)
        h = numbers(batch.column(at)).view(np.uint64)
        keys = pa.Table.from_batches([batch]).select(list(self._keys))
        placed = self._placement.moved(keys, h) if self._placement is not None else h
        return batch.set_column(at, batch.schema.field(at), pa.array(placed.view(np.int64)))

    def _split(
        self, splitter: Splitter, batch: pa.RecordBatch
    ) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """The events that go as they are, and the parts of the others."""
        moment = Moment(0, None, batch_number(), timed=False)
        if splitter.timed:
            moment = Moment(batch.column(NOW)[0].as_py(), None, batch_number())
            batch = batch.drop_columns(NOW)
        events = pa.Table.from_batches([batch])
        h = numbers(batch.column(HASH)).view(np.uint64)
        parted = splitter.split(events.drop_columns(HASH), h, moment)
        if parted is None:
            return batch, None
        mask, parts, hashes = parted
        rest = events.filter(pa.array(~mask)).combine_chunks().to_batches()
        hashed = parts.append_column(HASH, pa.array(hashes.view(np.int64))).combine_chunks()
        return rest[0] if rest else batch.slice(0, 0), hashed.to_batches()[0]

    def _packed(self, batch: pa.RecordBatch, stream: int, part: int, seq: int) -> pa.RecordBatch:
        groups = group_of(numbers(batch.column(batch.num_columns - 1)).view(np.uint64), self._key_groups)
        order = np.argsort(groups.astype(np.uint16), kind="stable")
        ordered = groups[order]
        batch = batch.take(pa.array(order))
        starts = starts_of(ordered)
        stops = np.append(starts[1:], len(ordered))
        payloads = [
            batch.slice(start, stop - start).serialize().to_pybytes()
            for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)
        ]
        stored = numbers_of(self._key_groups, self._numbering)[ordered[starts]]
        return packets_of(stored, stream, part, seq, pa.array(payloads, pa.binary()))
