"""Packets of events by key group: packed before the shuffle, unpacked where the state is.

A `Lane` is the configuration of one operator's workers and is pickled with the plan.

A group is a range of hashes. A key with a placement gets a hash in the range of the group that the placement
returns, and keeps the rest of its own hash, so all other code is the same for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from holdfast.errors import Invalid
from holdfast.worker.arrays import distinct, numbers, of_type, starts_of
from holdfast.worker.counts import BYTES, COUNTS, ENTRIES, EXPIRED, OWN_PREFIX, TOTALS, count_of
from holdfast.worker.declarations.handler_arguments import Event
from holdfast.worker.interface import Moment
from holdfast.worker.runtime.columns import records
from holdfast.worker.runtime.event_dispatcher import ErrorContext, failure, key_text, line_of
from holdfast.worker.runtime.runner_spec import INSTANCE
from holdfast.worker.state.group_numbers import Numbering
from holdfast.worker.state.layout import Layout, group_of, numbers_of, range_of
from holdfast.worker.task_facts import batch_number, partition_id

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdfast.worker.arrays import Hashes
    from holdfast.worker.runtime.broadcast import Broadcast
    from holdfast.worker.runtime.partial_aggregates import Splitter
    from holdfast.worker.runtime.runner_spec import Instances


HASH = "__holdfast_h"
NOW = "__holdfast_now"  # the batch's processing time, if events are processed before the shuffle
WAKE = -1  # the stream number of a packet that only wakes its group
PACKET = ("key_group", "stream", "part", "seq", "payload")
SIDE_COLUMNS = ("side", "side_stream", "side_event", "side_error")
# Rows are packed after this many bytes or at the end of the input, so that a group gets few packets.
PACK_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class InputStream:
    """One input stream of an operator.

    Attributes:
        name: The user's name of the stream.
        schema: The columns of the stream, without the hash.
        keys: The key columns, in the order of the operator's key.
        time: The event-time column, or None without a watermark.
        counts: The column with the number of events per row, if rows are merged events, or None.
        chained: Whether an operator with state produces the rows, so that none of them is late, and a row
            behind the watermark comes before the timers that are due.
        delay_ms: The delay of the stream's watermark behind its newest event.
    """

    name: str
    schema: pa.Schema
    keys: tuple[str, ...]
    time: str | None = None
    counts: str | None = None
    chained: bool = False
    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class Lane:
    """The configuration that all workers of one operator share.

    Attributes:
        layout: The layout of the operator's state.
        streams: The input streams in the order of their connection, followed by the internal stream of parts
            of hot keys or of touched instances.
        output: The columns of the result, including side output columns.
        keep_late: Whether the processor also receives late events.
        side_outputs: Whether late and failed events are returned in separate columns.
        broadcast: The stream that is sent to every key group, or None; its packets have the next number after
            `streams`.
    """

    layout: Layout
    streams: tuple[InputStream, ...]
    output: pa.Schema
    keep_late: bool = False
    side_outputs: bool = False
    broadcast: Broadcast | None = None

    @property
    def count_names(self) -> tuple[str, ...]:
        """Return the names of the counts that a task returns, in the order of the columns."""
        states = (name for name in self.layout.form.states if not name.startswith(OWN_PREFIX))
        of_states = (count_of(name, what) for name in states for what in (EXPIRED, ENTRIES, BYTES))
        return (*COUNTS, *TOTALS, *of_states)


class Spreader:
    """A function that packs a broadcast stream's rows for every key group, before the shuffle."""

    def __init__(self, schema: pa.Schema, stream: int, layout: Layout) -> None:
        self._schema = schema
        self._stream = stream
        self._layout = layout

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the packets of a task's batches, the same for each group."""
        part = partition_id() or 0
        for seq, batch in enumerate(filled for filled in batches if filled.num_rows):
            yield from self.packets(batch, part, seq)

    def packets(self, batch: pa.RecordBatch, part: int, seq: int) -> Iterator[pa.RecordBatch]:
        """Yield the packets of one batch of rows, in portions of limited size."""
        payload = conform(batch, self._schema).serialize().to_pybytes()
        every = numbers_of(self._layout.key_groups, self._layout.numbering)
        step = max(1, PACK_BYTES // len(payload))
        for first in range(0, len(every), step):
            numbers = every[first : first + step]
            payloads = pa.array([payload] * len(numbers), pa.binary())
            yield packets_of(numbers, self._stream, part, seq, payloads)


class Combiner:
    """A function that merges the events of a task with the processor's `combine`, before the shuffle."""

    def __init__(self, processor: Any, schema: pa.Schema) -> None:
        self._processor = processor
        self._schema = schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a task's batches with their events merged."""
        for gathered in gather(batches):
            yield from self._combined(gathered)

    def _combined(self, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = self._processor.combine(pa.Table.from_batches(batches))
        if not isinstance(table, pa.Table) or sorted(table.column_names) != sorted(self._schema.names):
            raise Invalid(
                "combine returned the wrong columns",
                code="HF-E2471",
                where=type(self._processor).__name__,
                found=", ".join(getattr(table, "column_names", [type(table).__name__])),
                expected=", ".join(self._schema.names),
                hint="declare the returned columns in `combined`, or return those of the stream",
            )
        for batch in table.select(self._schema.names).combine_chunks().to_batches():
            yield conform(batch, self._schema)


class Waker:
    """A function that turns any number of ticks into one wake-up packet per key group.

    Args:
        layout: The layout of the operator's state.
        touching: Returns the packets that touch all instances of an hf.Operator, or None for keyed state.
    """

    def __init__(self, layout: Layout, touching: Callable[[], pa.RecordBatch] | None = None) -> None:
        self._layout = layout
        self._touching = touching

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one packet per key group if there was a tick."""
        if not sum(batch.num_rows for batch in batches):
            return
        if self._touching is not None:
            yield self._touching()
        numbers = numbers_of(self._layout.key_groups, self._layout.numbering)
        yield packets_of(numbers, WAKE, WAKE, WAKE, pa.nulls(len(numbers), pa.binary()))


def gather(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Yield lists of non-empty batches, each list large enough that a group gets few packets."""
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
    """Return the packets of one stream and task, one per stored group number."""
    same = [pa.array(np.full(len(groups), number, np.int32)) for number in (stream, part, seq)]
    return pa.RecordBatch.from_arrays([pa.array(groups), *same, payloads], names=list(PACKET))


def packet_columns(numbering: Numbering) -> str:
    """Return the Spark schema of packets."""
    return f"key_group {numbering.key_type}, stream int, part int, seq int, payload binary"


def answer_schema(output: pa.Schema) -> pa.Schema:
    """Return the schema of an operator's results: lists of output rows, and lists of counts."""
    return pa.schema([("rows", pa.list_(pa.struct(list(output)))), ("counts", pa.list_(pa.int64()))])


class Unpacker:
    """A function that unpacks results from bytes."""

    def __init__(self, output: pa.Schema) -> None:
        self._output = output

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the packed results as batches of output rows."""
        for batch in batches:
            for payload in batch.column(0):
                buffer = payload.as_buffer()
                if buffer is not None and buffer.size:
                    yield pa.ipc.read_record_batch(buffer, self._output)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with its columns cast to the types of a schema."""
    arrays = [of_type(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass(slots=True)
class Packer:
    """A function that packs one stream's events by key group, before the shuffle.

    Args:
        stream: The stream.
        number: The number of the stream.
        layout: The layout of the operator's state.
        splitter: The function that merges events of hot keys, or None; its parts have the next stream number.
        instances: The instances of an hf.Operator, or None; packets that touch them have the next stream
            number.
    """

    stream: InputStream
    number: int
    layout: Layout
    splitter: Splitter | None = None
    instances: Instances | None = None
    _dealt_rows: int = field(default=0, init=False)

    @property
    def columns(self) -> str:
        """Return the Spark schema of the packets."""
        return packet_columns(self.layout.numbering)

    @property
    def timed(self) -> bool:
        """Return whether events have a column with the batch's processing time."""
        return self.splitter is not None and self.splitter.timed

    @property
    def of_instances(self) -> bool:
        """Return whether the state belongs to instances instead of keys."""
        return self.instances is not None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the packets of a task's batches."""
        self._dealt_rows = 0
        part = partition_id() or 0
        if self.instances is not None and part == 0:
            yield self.touching()
        for seq, gathered in enumerate(gather(batches)):
            yield from self.packets(gathered, part, seq)

    def packets(self, batches: Sequence[pa.RecordBatch], part: int, seq: int) -> Iterator[pa.RecordBatch]:
        """Yield one packet per key group with events in these batches, and one per group with parts of hot
        keys.
        """
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
        """Return the packets that touch instances, also those without events."""
        count = self.instances.touched() if self.instances is not None else 0
        numbered = [
            pa.array(range(count), self.stream.schema.field(INSTANCE).type),
            pa.array([0] * count, pa.int64()),
        ]
        batch = self._placed(pa.RecordBatch.from_arrays(numbered, names=[INSTANCE, HASH]))
        return self._packed(batch, self.number + 1, 0, 0)

    def _dealt(self, batch: pa.RecordBatch, count: int, part: int) -> pa.RecordBatch:
        """Return rows with instances assigned in turn; each task starts with a different instance."""
        at = batch.schema.get_field_index(INSTANCE)
        if not batch.column(at).null_count:
            return batch
        turn = np.arange(part + self._dealt_rows, part + self._dealt_rows + batch.num_rows) % count
        self._dealt_rows += batch.num_rows
        return batch.set_column(at, batch.schema.field(at), pa.array(turn.astype(np.int32)))

    def _placed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with hashes moved into the groups that the placement returns."""
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
        """Return the events that were not merged, and the parts built from the merged ones."""
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


# The number of stored or arrived keys whose placement is computed again, to check that it is stable.
_ASKED = 256


@dataclass(frozen=True, slots=True)
class Placement:
    """A user's function that places the keys of an operator into key groups.

    Attributes:
        function: Takes the values of the key columns and returns the number of a key group.
        key_groups: The number of key groups.
        operator: The user's name of the operator.
    """

    function: Callable[..., Any]
    key_groups: int
    operator: str

    def moved(self, keys: pa.Table, h: Hashes) -> Hashes:
        """Return the hash of each key, moved into the range of the key's group.

        Raises:
            Failed: The user's function raised an exception.
            Invalid: The user's function did not return the number of a key group.
        """
        if not len(h):
            return h
        first, position = distinct(h, keys)
        groups = self._groups(keys.take(pa.array(first)))[position]
        if self.key_groups == 1:
            return h
        lows = np.array([range_of(group, self.key_groups)[0] for group in range(self.key_groups)], np.uint64)
        widths = np.diff(lows, append=np.uint64(0))  # the last group ends where hashes wrap around
        moved: Hashes = lows[groups] + h % widths[groups]
        return moved

    def check(self, keys: pa.Table, h: Hashes) -> None:
        """Call the user's function again for some stored keys and compare the groups.

        Raises:
            Invalid: The function returns a different group than the one in which a key is stored.
        """
        step = -(-len(h) // _ASKED)
        if not step:
            return
        some = keys.take(pa.array(np.arange(0, len(h), step)))
        now, before = self._groups(some), group_of(h[::step], self.key_groups)
        moved = np.flatnonzero(now != before)
        if len(moved):
            at = int(moved[0])
            raise Invalid(
                "the placement function is not stable: it returned a different key group for a stored key",
                code="HF-E2472",
                where=str(ErrorContext(self.operator, key=records(some.slice(at, 1))[0])),
                found=f"group {now[at]}",
                expected=f"group {before[at]}, where the state of the key is stored",
                hint="compute the key group from the key alone, in the same way in every run",
            )

    def _groups(self, keys: pa.Table) -> NDArray[np.int64]:
        return np.array([self._group(key) for key in records(keys)], np.int64)

    def _group(self, key: Event) -> int:
        try:
            group = self.function(*key)
        except Exception as error:
            place = ErrorContext(self.operator, key=key, line=line_of(error, self.function))
            raise failure("placement", self.function, error, place) from error
        if type(group) is not int or not 0 <= group < self.key_groups:
            raise Invalid(
                "the placement function did not return a valid key group",
                code="HF-E2473",
                where=f"operator {self.operator}, key {key_text(key)}",
                found=repr(group),
                expected=f"an int from 0 to {self.key_groups - 1}",
                hint=f"take the remainder: return number % {self.key_groups}",
            )
        return group
