"""A pass over some key groups: finds their keys, runs the processor and stores the changes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.formats.access_times import keyed_bucket
from holdfast.worker.arrays import numbers, whole
from holdfast.worker.counts import BYTES, COUNTS, ENTRIES, EXPIRED, count_of
from holdfast.worker.interface import Arrivals, FailedEvent, Moment, Runner
from holdfast.worker.packets import HASH, PACKET, SIDE_COLUMNS, InputStream, Lane
from holdfast.worker.runtime.broadcast import BroadcastPass
from holdfast.worker.runtime.event_dispatcher import UNTIMED
from holdfast.worker.runtime.ttl import times_ms
from holdfast.worker.state.tables import Run
from holdfast.worker.state.upkeep import Tally

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdfast.worker.arrays import Hashes
    from holdfast.worker.interface import Outcome
    from holdfast.worker.runtime.broadcast import Keeper
    from holdfast.worker.state.group_numbers import Numbering
    from holdfast.worker.state.partition import Partition


# The share of memory for the input of one run of the processor, and for the elements of lists and maps that
# it may read; if there is more data, key groups are run in several portions.
_SHARE = 4
# The memory of an event until its key's row is stored: its bytes times this factor, plus a constant.
_COPIES, _EVENT_BYTES = 3, 400


@dataclass(slots=True)
class Packet:
    """A packet of rows of one stream for one key group; a wake-up has no payload."""

    group: int
    stream: int
    part: int
    seq: int
    payload: bytes | pa.Buffer | None


def packets_in(batch: pa.RecordBatch, numbering: Numbering) -> Iterator[Packet]:
    """Yield the packets in a batch of packed rows, without copying payloads."""
    *columns, payloads = (batch.column(batch.schema.get_field_index(name)) for name in PACKET)
    numbers = (column.to_pylist() for column in columns)
    for number, stream, part, seq, payload in zip(*numbers, payloads, strict=True):
        yield Packet(numbering.group_at(number), stream, part, seq, payload.as_buffer())


@dataclass(slots=True)
class TaskOutput:
    """The output of a task: rows, or counts by name."""

    rows: pa.RecordBatch | None = None
    counts: dict[str, int] = field(default_factory=dict)

    def listed(self, names: Sequence[str]) -> list[int | None] | None:
        """Return the counts in the order of these names, or None without counts."""
        return [self.counts.get(name) for name in names] if self.counts else None


class Pass:
    """A pass of the collected packets of some key groups through a processor, over a partition's state."""

    def __init__(
        self, lane: Lane, partition: Partition, runner: Runner, keeper: Keeper | None = None
    ) -> None:
        self._lane = lane
        self._partition = partition
        self._runner = runner
        self._keeper = keeper
        self._side_columns = len(SIDE_COLUMNS) if lane.side_outputs else 0
        # What the runner receives: first the rows of chained streams that come before due timers.
        self._inputs = (*(stream for stream in lane.streams if stream.chained), *lane.streams)

    def run(self, packets: Sequence[Packet], waking: Iterable[int], moment: Moment) -> Iterator[TaskOutput]:
        """Process all packets and the groups to wake, and write the state at the end."""
        partition = self._partition
        partition.open(sorted({packet.group for packet in packets} | set(waking)), moment)
        refused = self._share(packets, moment)
        early: list[pa.Table] = []
        in_time: list[pa.Table] = []
        late: list[pa.Table] = []
        for at, stream in enumerate(self._lane.streams):
            schema = stream.schema.append(pa.field(HASH, pa.int64()))
            events = self._table(schema, [packet for packet in packets if packet.stream == at])
            if moment.replay is not None and stream.time is not None:
                times = times_ms(events.column(stream.time), UNTIMED)
                events = events.take(pa.array(np.argsort(times, kind="stable")))
            kept, missed = self._without_late(stream, events, moment)
            if stream.chained:
                early.append(missed)
                missed = missed.slice(0, 0)
            in_time.append(kept)
            late.append(missed)
        inputs = [*early, *in_time]
        behind = sum(events.num_rows for events in late)
        counts = {"events": self._count(inputs) + behind, "late": behind, "failed": len(refused)}
        due = partition.due(moment)
        if len(due) or any(events.num_rows for events in inputs):
            for part, woken in self._parts(inputs, due):
                outcome = self._process(part, woken, moment)
                counts["failed"] += len(outcome.failed)
                yield from map(TaskOutput, self._rows(outcome))
                yield from self._failed(outcome.failed)
        yield from self._failed(refused)
        for stream, missed in zip(self._lane.streams, late, strict=True):
            yield from self._late(stream, missed)
        partition.write(moment)
        yield TaskOutput(counts=counts | counted(partition))

    def _share(self, packets: Sequence[Packet], moment: Moment) -> list[FailedEvent]:
        """Apply the rows of the broadcast stream and make all of its rows visible to the handlers.

        Every group receives the same packets of the broadcast stream, so the packets of one group are read
        and the copies of all groups are written.

        Returns:
            The rows that were set aside, in only one task of the batch.
        """
        broadcast, keeper = self._lane.broadcast, self._keeper
        if broadcast is None or keeper is None:
            return []
        partition = self._partition
        rows = BroadcastPass(broadcast, keeper, partition.shared(broadcast.name))
        arrived = [packet for packet in packets if packet.stream == len(self._lane.streams)]
        failed: list[FailedEvent] = []
        if arrived:
            first = min(packet.group for packet in arrived)
            events = self._table(broadcast.schema, [packet for packet in arrived if packet.group == first])
            changed, failed = keeper.take(rows.kept, events, moment)
            if changed:
                partition.share(broadcast.name, keeper.columns(changed))
                keeper.check_room(
                    partition.shared(broadcast.name).nbytes, len({packet.group for packet in arrived})
                )
            failed = failed if first == 0 else []
        self._runner.share(rows)
        return failed

    def _count(self, streams: Sequence[pa.Table]) -> int:
        """Return the number of events; a row of merged events counts as several."""
        return sum(
            events.num_rows if stream.counts is None else pc.sum(events.column(stream.counts)).as_py() or 0
            for stream, events in zip(self._inputs, streams, strict=True)
        )

    def _process(self, streams: Sequence[pa.Table], due: Run, moment: Moment) -> Outcome:
        names = list(self._lane.layout.key_names)
        keyed = [
            (_hashes(events), events.select(stream.keys).rename_columns(names))
            for stream, events in zip(self._inputs, streams, strict=True)
        ]
        if self._lane.layout.placement is not None:
            for h, keys_of in keyed:
                self._lane.layout.placement.check(keys_of, h)
        keys = self._partition.touch(keyed, due)
        arrivals = [
            Arrivals(events.drop_columns(HASH), position)
            for events, position in zip(streams, keys.positions, strict=True)
        ]
        outcome = self._runner.run(arrivals, keys, moment)
        self._partition.keep(keys, outcome)
        return outcome

    def _parts(self, streams: Sequence[pa.Table], due: Run) -> Iterator[tuple[Sequence[pa.Table], Run]]:
        """Yield all events and due timers, or portions by key group if they do not fit in memory."""
        partition = self._partition
        hashes = [_hashes(events) for events in streams]
        groups = [partition.groups_of(h) for h in (*hashes, due.h)]
        bytes_of = [_COPIES * rows.nbytes / max(1, rows.num_rows) for rows in (*streams, due.batch)]
        load = np.zeros(self._lane.layout.key_groups)
        for of, size in zip(groups, bytes_of, strict=True):
            load += np.bincount(of, minlength=len(load)) * (size + _EVENT_BYTES)
        if partition.has_elements:
            load = np.maximum(load, partition.element_bytes(np.unique(np.concatenate([*hashes, due.h]))))
        starts = _cut(load, self._lane.layout.memory_bytes / _SHARE)
        if len(starts) == 1:
            yield streams, due
            return
        for start, stop in zip(starts, [*starts[1:], len(load)], strict=True):
            at = [np.searchsorted(of, (start, stop)).tolist() for of in groups]
            some = [
                table.slice(first, last - first) for table, (first, last) in zip(streams, at, strict=False)
            ]
            yield some, due.slice(*at[-1])

    @staticmethod
    def _table(schema: pa.Schema, packets: Sequence[Packet]) -> pa.Table:
        """Return the rows of packets, ordered by group and arrival."""
        ordered = sorted(packets, key=lambda packet: (packet.group, packet.part, packet.seq))
        batches = [
            pa.ipc.read_record_batch(pa.py_buffer(packet.payload), schema)
            for packet in ordered
            if packet.payload is not None
        ]
        return pa.Table.from_batches(batches, schema).combine_chunks()

    def _without_late(
        self, stream: InputStream, events: pa.Table, moment: Moment
    ) -> tuple[pa.Table, pa.Table]:
        """Return the events ahead of the watermark, and the others: late ones, or early ones if chained."""
        none = events.slice(0, 0)
        keeps_all = self._lane.keep_late and not stream.chained
        if keeps_all or stream.time is None or not events.num_rows or not moment.watermark_ms:
            return events, none
        late = late_events(events.column(stream.time), moment.watermark_ms)
        if not late.any():
            return events, none
        return events.filter(pa.array(~late)), events.filter(pa.array(late))

    def _rows(self, outcome: Outcome) -> Iterator[pa.RecordBatch]:
        rows = outcome.output
        for name in SIDE_COLUMNS[: self._side_columns]:
            rows = rows.append_column(name, pa.nulls(rows.num_rows, pa.string()))
        row_bytes = max(1, rows.nbytes // max(1, rows.num_rows))
        limit = max(1, (self._lane.layout.memory_bytes // 32) // row_bytes)
        yield from rows.combine_chunks().to_batches(max_chunksize=limit)

    def _failed(self, failed: Sequence[FailedEvent]) -> Iterator[TaskOutput]:
        """Yield the failed events for the side output, if it is enabled."""
        if failed and self._lane.side_outputs:
            yield self._side(
                [("failed", failure.stream, as_text(failure.event), failure.error) for failure in failed]
            )

    def _late(self, stream: InputStream, events: pa.Table) -> Iterator[TaskOutput]:
        """Yield the late events for the side output, if it is enabled."""
        if events.num_rows and self._lane.side_outputs:
            rows = events.drop_columns(HASH).to_pylist()
            yield self._side([("late", stream.name, as_text(row), None) for row in rows])

    def _side(self, rows: Sequence[tuple[str | None, ...]]) -> TaskOutput:
        schema = self._lane.output
        columns = list(zip(*rows, strict=True))
        own = len(schema) - self._side_columns
        arrays = [pa.nulls(len(rows), field.type) for field in list(schema)[:own]]
        arrays += [pa.array(column, pa.string()) for column in columns]
        return TaskOutput(pa.RecordBatch.from_arrays(arrays, schema=schema))


def counted(partition: Partition) -> dict[str, int]:
    """Return the counts of work on a partition since the last call, by count name.

    A pass reads the state of its keys at once, and writes it at once: two accesses.
    """
    done, partition.tally = partition.tally, Tally()
    accesses = Counter(keyed_bucket(nanos) for nanos in (done.read_ns, done.write_ns) if nanos)
    return {
        **{name: getattr(done, name) for name in COUNTS if hasattr(done, name)},
        "read_us": done.read_ns // 1000,
        "write_us": done.write_ns // 1000,
        **accesses,
        **{count_of(state, EXPIRED): number for state, number in done.expired.items()},
    }


def totalled(partition: Partition, groups: Iterable[int], moment: Moment) -> tuple[dict[str, int], list[int]]:
    """Return the totals of these groups of a partition, and the groups that could not be included."""
    totals, size, uncounted = partition.totals(groups, moment)
    counts = {
        "total_keys": totals.keys,
        "total_timers": totals.timers,
        "total_bytes": size,
        "uncounted_groups": len(uncounted),
        **{count_of(state, ENTRIES): number for state, number in totals.entries.items()},
        **{count_of(state, BYTES): number for state, number in totals.sizes.items()},
    }
    return counts, uncounted


def _cut(load: NDArray[np.float64], limit: float) -> list[int]:
    """Return the start of each part, so that a part is within the limit or consists of one group."""
    starts, room = [0], limit
    for group in np.flatnonzero(load).tolist():
        if load[group] > room and room < limit:
            starts.append(group)
            room = limit
        room -= load[group]
    return starts


def late_events(times: pa.ChunkedArray, watermark_ms: int) -> NDArray[np.bool_]:
    """Return a mask of late events: the watermark has reached their time. A null time is never late."""
    ticks = whole(times).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    micros = numbers(ticks.fill_null(np.iinfo(np.int64).max))
    late: NDArray[np.bool_] = micros <= watermark_ms * 1000
    return late


def as_text(row: dict[str, Any]) -> str:
    """Return a row as JSON; values without a JSON type become strings."""
    return json.dumps(row, default=str, ensure_ascii=False)


def _hashes(table: pa.Table) -> Hashes:
    return numbers(whole(table.column(table.num_columns - 1))).view(np.uint64)
