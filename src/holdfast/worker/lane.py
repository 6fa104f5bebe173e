"""How events travel to their state in tables: packed by key group, unpacked beside the state, and back.

`Lane` is all that the workers of one operator must know. It is pickled with the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from holdfast.errors import Invalid
from holdfast.worker.arrays import of_type
from holdfast.worker.counts import BYTES, COUNTS, ENTRIES, EXPIRED, OWN_PREFIX, TOTALS, count_of
from holdfast.worker.state.group_numbers import Numbering
from holdfast.worker.state.key_group import numbers_of
from holdfast.worker.state.operator_layout import Layout
from holdfast.worker.task_facts import partition_id

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdfast.worker.runtime.features.broadcast import Broadcast

HASH = "__holdfast_h"
NOW = "__holdfast_now"  # the batch's processing time, where events are run before the shuffle
WAKE = -1  # the stream number of a packet that only wakes its group
PACKET = ("key_group", "stream", "part", "seq", "payload")
SIDE_COLUMNS = ("side", "side_stream", "side_event", "side_error")
# Packing waits for so many bytes or the end of the input, so that a group gets few packets.
PACK_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Stream:
    """One input of an operator.

    Attributes:
        name: The user's name of it.
        schema: Its columns, without the hash.
        keys: Its key columns, in the order of the operator's.
        time: The column with the event time, where the stream has a watermark.
        counts: The column that says of how many events a row is, where it is of several.
    """

    name: str
    schema: pa.Schema
    keys: tuple[str, ...]
    time: str | None = None
    counts: str | None = None


@dataclass(frozen=True, slots=True)
class Lane:
    """What the workers of one operator know.

    Attributes:
        layout: What fixes its state.
        streams: Its inputs, as connected; after them the parts of hot keys, where these are split.
        output: The columns of its result, with those of the side output where asked for.
        keep_late: Whether late events are handed to the processor all the same.
        side_outputs: Whether late and failed events are put out in columns of their own.
        broadcast: The stream that reaches every key group; its packets bear the number after the streams'.
    """

    layout: Layout
    streams: tuple[Stream, ...]
    output: pa.Schema
    keep_late: bool = False
    side_outputs: bool = False
    broadcast: Broadcast | None = None

    @property
    def count_names(self) -> tuple[str, ...]:
        """What its tasks count, in the order in which they answer it."""
        states = (name for name in self.layout.form.states if not name.startswith(OWN_PREFIX))
        of_states = (count_of(name, what) for name in states for what in (EXPIRED, ENTRIES, BYTES))
        return (*COUNTS, *TOTALS, *of_states)


class Spreader:
    """Packs a broadcast stream's rows for every key group, in the tasks before the shuffle."""

    def __init__(self, schema: pa.Schema, stream: int, layout: Layout) -> None:
        self._schema = schema
        self._stream = stream
        self._layout = layout

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Turn the batches of a task into packets, the same for each group."""
        part = partition_id() or 0
        for seq, batch in enumerate(filled for filled in batches if filled.num_rows):
            yield from self.packets(batch, part, seq)

    def packets(self, batch: pa.RecordBatch, part: int, seq: int) -> Iterator[pa.RecordBatch]:
        """The packets of one batch of rows, few enough at a time to be small."""
        payload = conform(batch, self._schema).serialize().to_pybytes()
        every = numbers_of(self._layout.key_groups, self._layout.numbering)
        step = max(1, PACK_BYTES // len(payload))
        for first in range(0, len(every), step):
            numbers = every[first : first + step]
            payloads = pa.array([payload] * len(numbers), pa.binary())
            yield packets_of(numbers, self._stream, part, seq, payloads)


class Combiner:
    """Lets a processor combine events of a task before they travel."""

    def __init__(self, processor: Any, schema: pa.Schema) -> None:
        self._processor = processor
        self._schema = schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Turn the batches of a task into fewer rows."""
        for gathered in gather(batches):
            yield from self._combined(gathered)

    def _combined(self, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = self._processor.combine(pa.Table.from_batches(batches))
        if not isinstance(table, pa.Table) or sorted(table.column_names) != sorted(self._schema.names):
            raise Invalid(
                "combine gave other columns than it declares",
                where=type(self._processor).__name__,
                found=", ".join(getattr(table, "column_names", [type(table).__name__])),
                expected=", ".join(self._schema.names),
                hint="give `combined` the columns that combine returns, or select the stream's",
            )
        for batch in table.select(self._schema.names).combine_chunks().to_batches():
            yield conform(batch, self._schema)


class Waker:
    """Turns ticks into packets that wake every key group, however many ticks there were.

    Args:
        layout: What fixes the operator's state.
        touching: Makes the packets that touch instances: a tick must not reach some of them alone.
    """

    def __init__(self, layout: Layout, touching: Callable[[], pa.RecordBatch] | None = None) -> None:
        self._layout = layout
        self._touching = touching

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One packet for each key group if there was a tick."""
        if not sum(batch.num_rows for batch in batches):
            return
        if self._touching is not None:
            yield self._touching()
        numbers = numbers_of(self._layout.key_groups, self._layout.numbering)
        yield packets_of(numbers, WAKE, WAKE, WAKE, pa.nulls(len(numbers), pa.binary()))


def gather(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Batches with rows, so many at a time that a group gets few packets."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            size += batch.nbytes
        if size >= PACK_BYTES:
            yield waiting
            waiting, size = [], 0
    if waiting:
        yield waiting


def packets_of(
    groups: NDArray[np.int64 | np.int32], stream: int, part: int, seq: int, payloads: pa.Array
) -> pa.RecordBatch:
    """Packets of one stream and task, one for each of the groups, which are named as they are stored."""
    same = [pa.array(np.full(len(groups), number, np.int32)) for number in (stream, part, seq)]
    return pa.RecordBatch.from_arrays([pa.array(groups), *same, payloads], names=list(PACKET))


def packet_columns(numbering: Numbering) -> str:
    """The columns of packets as Spark is told them."""
    return f"key_group {numbering.key_type}, stream int, part int, seq int, payload binary"


def answer_schema(output: pa.Schema) -> pa.Schema:
    """The columns in which an operator answers: rows of its output in lists, and counts beside them."""
    return pa.schema([("rows", pa.list_(pa.struct(list(output)))), ("counts", pa.list_(pa.int64()))])


class Unpacker:
    """Unpacks answers into rows, where they had to be put into bytes."""

    def __init__(self, output: pa.Schema) -> None:
        self._output = output

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Turn packed answers into batches of the output."""
        for batch in batches:
            for payload in batch.column(0):
                buffer = payload.as_buffer()
                if buffer is not None and buffer.size:
                    yield pa.ipc.read_record_batch(buffer, self._output)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of a batch in exactly this schema's types."""
    arrays = [of_type(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
