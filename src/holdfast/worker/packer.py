"""Events packed by key group, in the tasks before the shuffle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from holdfast.worker.arrays import numbers, starts_of
from holdfast.worker.interface import Moment
from holdfast.worker.lane import HASH, NOW, Stream, conform, gather, packet_columns, packets_of
from holdfast.worker.runtime.features.instances import INSTANCE
from holdfast.worker.state.key_group import group_of, numbers_of
from holdfast.worker.state.operator_layout import Layout
from holdfast.worker.task_facts import batch_number, partition_id

if TYPE_CHECKING:
    from holdfast.worker.runtime.features.instances import Instances
    from holdfast.worker.runtime.features.partial_aggregates import Splitter


@dataclass(slots=True)
class Packer:
    """Packs one stream's events by key group, in the tasks before the shuffle.

    Args:
        stream: The stream.
        number: Its number.
        layout: What fixes the operator's state.
        splitter: What takes the events of hot keys together; its parts bear the number after the stream's.
        instances: The instances whose state it is; those to be touched bear that number.
    """

    stream: Stream
    number: int
    layout: Layout
    splitter: Splitter | None = None
    instances: Instances | None = None
    _dealt_rows: int = field(default=0, init=False)

    @property
    def columns(self) -> str:
        """The columns of its packets as Spark is told them."""
        return packet_columns(self.layout.numbering)

    @property
    def timed(self) -> bool:
        """Whether events come with the batch's time."""
        return self.splitter is not None and self.splitter.timed

    @property
    def of_instances(self) -> bool:
        """Whether the state is of instances, and not of keys."""
        return self.instances is not None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Turn the batches of a task into packets."""
        self._dealt_rows = 0
        part = partition_id() or 0
        if self.instances is not None and part == 0:
            yield self.touching()
        for seq, gathered in enumerate(gather(batches)):
            yield from self.packets(gathered, part, seq)

    def packets(self, batches: Sequence[pa.RecordBatch], part: int, seq: int) -> Iterator[pa.RecordBatch]:
        """One packet for each key group in these batches, and one for the parts of its hot keys."""
        hashed = [pa.field(HASH, pa.int64()), *([pa.field(NOW, pa.int64())] if self.timed else [])]
        batch = conform(pa.concat_batches(batches), pa.schema([*self.stream.schema, *hashed]))
        if self.instances is not None:
            batch = self._dealt(batch, self.instances.count, part)
        batch = self._placed(batch)
        if self.splitter is not None:
            batch, parts = self._split(self.splitter, batch)
            if parts is not None:
                yield self._packed(parts, self.number + 1, part, seq)
        if batch.num_rows:
            yield self._packed(batch, self.number, part, seq)

    def touching(self) -> pa.RecordBatch:
        """Packets that touch instances, whether there are events for them or not."""
        count = self.instances.touched() if self.instances is not None else 0
        numbered = [
            pa.array(range(count), self.stream.schema.field(INSTANCE).type),
            pa.array([0] * count, pa.int64()),
        ]
        batch = self._placed(pa.RecordBatch.from_arrays(numbered, names=[INSTANCE, HASH]))
        return self._packed(batch, self.number + 1, 0, 0)

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
        if self.layout.placement is None:
            return batch
        at = batch.schema.get_field_index(HASH)
        h = numbers(batch.column(at)).view(np.uint64)
        keys = pa.Table.from_batches([batch]).select(list(self.stream.keys))
        placed = self.layout.placement.moved(keys, h)
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
        h = numbers(batch.column(batch.num_columns - 1)).view(np.uint64)
        groups = group_of(h, self.layout.key_groups)
        order = np.argsort(groups.astype(np.uint16), kind="stable")
        ordered = groups[order]
        batch = batch.take(pa.array(order))
        starts = starts_of(ordered)
        stops = np.append(starts[1:], len(ordered))
        payloads = [
            batch.slice(start, stop - start).serialize().to_pybytes()
            for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)
        ]
        stored = numbers_of(self.layout.key_groups, self.layout.numbering)[ordered[starts]]
        return packets_of(stored, stream, part, seq, pa.array(payloads, pa.binary()))
