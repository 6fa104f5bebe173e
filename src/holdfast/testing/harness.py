"""The test harness: runs a processor without Spark, with a manual clock and inspectable state."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.errors import HoldfastError, Invalid, NotFound
from holdfast.worker.arrays import whole
from holdfast.worker.build import LateEvents, OnError, Options, assemble, splitter_of
from holdfast.worker.declarations.handler_arguments import Timer
from holdfast.worker.declarations.processor import ProcessorDefinition, definition_of
from holdfast.worker.declarations.state_descriptors import (
    SETTLED,
    Keyed,
    KeyedTable,
    Operator,
    State,
    StateKind,
)
from holdfast.worker.declarations.types import schema_of
from holdfast.worker.interface import STAMP_PREFIX, TIMERS, VALUE_PREFIX, Moment
from holdfast.worker.packets import (
    HASH,
    NOW,
    SIDE_COLUMNS,
    Combiner,
    InputStream,
    Lane,
    Packer,
    Placement,
    Spreader,
)
from holdfast.worker.passes import Packet, packets_in
from holdfast.worker.runtime.broadcast import Broadcast
from holdfast.worker.runtime.columns import Unfit, table_of, values_of
from holdfast.worker.runtime.partial_aggregates import Split
from holdfast.worker.runtime.runner_spec import (
    INSTANCE,
    MOST_INSTANCES,
    Instances,
    own_group,
    redistributed,
    settled_counts,
)
from holdfast.worker.runtime.timers import decode, ms_of, timer_of
from holdfast.worker.state.key_index import Keys
from holdfast.worker.state.layout import Period, continued, group_of
from holdfast.worker.state.partition import Partition
from holdfast.worker.state.store import MemoryStore
from holdfast.worker.state.tables import empty_run
from holdfast.worker.state.upkeep import Totals, expired


@dataclass(frozen=True, slots=True)
class Inspection:
    """The internal state of a harness after its last batch.

    Attributes:
        store: The records and blobs of all key groups. Changing it changes the harness's state.
        lane: The configuration of the workers, with the layout of the state.
        definition: The definition of the processor.
        moment: The clocks and the id of the next batch.
        partition: The function that creates the partition of the next batch, with no group open.
    """

    store: MemoryStore
    lane: Lane
    definition: ProcessorDefinition
    moment: Moment
    partition: Callable[[], Partition]


def read_state(states: Sequence[State], key: Keys, moment: Moment) -> dict[str, Any]:
    """Return the value of each state of a single key: a plain value, a list, or a dictionary."""
    return {state.name: _read(state, key, moment) for state in states}


def read_timers(key: Keys) -> tuple[Timer, ...]:
    """Return the timers of a single key, in the order of their times."""
    stored = decode(key.stored(TIMERS)[0].as_py())
    timers = [timer_of(name, at_ms) for name, at_ms in stored.items()]
    return tuple(sorted(timers, key=lambda timer: (timer.at_ms, timer.clock, timer.name)))


def _read(state: State, key: Keys, moment: Moment) -> Any:
    if state.has_elements:
        return _elements(state, key, moment)
    value = key.stored(f"{VALUE_PREFIX}{state.name}")
    if state.ttl is not None and state.ttl.visibility == "never_return_expired":
        stamp = key.stored(f"{STAMP_PREFIX}{state.name}")
        if expired(stamp, state.ttl, moment)[0]:
            value = value.slice(0, 0)
    (stored,) = values_of(value) or [None]
    if stored is None:
        return state.default
    if state.kind is StateKind.AGGREGATING and state.aggregate is not None:
        return state.aggregate.result(stored)
    return stored


def _elements(state: State, key: Keys, moment: Moment) -> Any:
    rows = key.elements(state.name).rows
    if state.ttl is not None and state.ttl.visibility == "never_return_expired":
        rows = rows.filter(pa.array(~expired(whole(rows.column("t")), state.ttl, moment)))
    values = values_of(whole(rows.column("v")))
    if state.kind is StateKind.LIST:
        return values
    return dict(zip(values_of(whole(rows.column("k"))), values, strict=True))


def broadcast(
    columns: Any,
    *,
    key: str | Sequence[str],
    version: str | None = None,
    withdrawn: str | None = None,
    name: str = "broadcast",
) -> Broadcast:
    """Describe a broadcast stream for a `Harness`; the arguments are those of `hf.broadcast`.

    Args:
        columns: The columns of the stream: "rule string, limit double", or a schema.
        key: The columns that identify a row.
        version: The column by which the versions of a row are ordered.
        withdrawn: The column that marks a row as deleted.
        name: The name of the stream.
    """
    keys = (key,) if isinstance(key, str) else tuple(key)
    return Broadcast(name, schema_of(columns), keys, version, withdrawn)


Events = str | Mapping[str, Any]


class Harness:
    """A processor with its state in memory, run batch by batch as Spark would.

    Each call of `send` is a batch. The clock and the watermark move only if you move them; moving one is also
    a batch, in which due timers fire. A batch that raises an error changes nothing.

    The watermark does not follow the events, as it does in Spark: set it to the value that it would have at
    the start of the next batch.

    Args:
        processor: An instance of your class.
        by: The key columns; empty for an `hf.Operator`.
        events: The columns of the events, "customer string, amount double"; for connected streams, the
            columns of each by its name, in order.
        output: The columns of the processor's output.
        time: The event-time column: one name for all streams, or one for each by the stream's name; None
            if no stream has a watermark.
        now: The initial processing time, as a `datetime` (UTC) or in epoch milliseconds.
        late: As in `process`: "drop" or "keep".
        on_error: As in `process`: "fail" or "dead-letter".
        drop: As in `process`: former states to delete.
        broadcast: The broadcast stream, if the processor has one.
        placement: As in `keyed`.
        split_rows: The number of events of a batch per task, to split all keys as `split_hot` splits hot
            ones. By default no key is split. The output must not depend on this number.
        instances: For an `hf.Operator`: the number of instances, to which rows are dealt in turn,
            starting with the first in every batch.
        key_groups: As in `keyed`; the output must not depend on it.
        name: The operator's name in errors.

    Attributes:
        late_events: All late events so far, as dictionaries.
        failed_events: The events that were set aside, as dictionaries.
    """

    def __init__(
        self,
        processor: Keyed | KeyedTable,
        *,
        by: str | Sequence[str] = (),
        events: Events,
        output: Any,
        time: str | Mapping[str, str] | None = None,
        now: dt.datetime | int = 0,
        late: LateEvents = "drop",
        on_error: OnError = "fail",
        drop: Iterable[str] = (),
        broadcast: Broadcast | None = None,
        placement: Callable[..., int] | None = None,
        split_rows: int | None = None,
        instances: int | None = None,
        key_groups: int = 8,
        name: str = "harness",
    ) -> None:
        self.late_events: list[dict[str, Any]] = []
        self.failed_events: list[dict[str, Any]] = []
        self._by = (by,) if isinstance(by, str) else tuple(by)
        self._schemas = {"event": events} if not isinstance(events, Mapping) else dict(events)
        self._check_instances(processor, instances)
        if instances is not None:
            self._by, key_groups, placement = (INSTANCE,), MOST_INSTANCES, own_group
            self._schemas = {stream: f"{schema}, {INSTANCE} int" for stream, schema in self._schemas.items()}
        self._times = time if isinstance(time, Mapping) else dict.fromkeys(self._schemas, time)
        self._output = schema_of(output)
        self._broadcast = broadcast
        self._options = Options(
            name,
            key_groups,
            event_time=any(self._times.values()),
            late=late,
            on_error=on_error,
            side_outputs=True,
            drop=tuple(drop),
            split=None if split_rows is None else Split(None, share=0.0, least=1),
            placement=None if placement is None else Placement(placement, key_groups, name),
            instances=None if instances is None else Instances(name, instances),
        )
        self._split_rows = split_rows or 0
        self._store = MemoryStore()
        self._tokens = count(1)
        self._batch_id = 0
        self._now_ms = ms_of(now)
        self._watermark_ms: int | None = None
        self._periods: tuple[Period, ...] = ()
        self._use(processor)

    # Batches

    def send(self, *rows: Mapping[str, Any], stream: str | None = None) -> list[dict[str, Any]]:
        """Run a batch of events, each a dictionary, and return the output rows."""
        name = next(iter(self._schemas)) if stream is None else stream
        return self.send_all({name: rows})

    def send_all(self, batch: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
        """Run a batch with events of several streams, and return the output rows."""
        packets: list[Packet] = []
        for name, rows in batch.items():
            if not rows:
                continue
            if self._broadcast is not None and name == self._broadcast.name:
                packets += self._spread(self._broadcast, rows)
            else:
                packets += self._packed(self._number(name), rows)
        return self._run(packets)

    def broadcast(self, *rows: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Run a batch of rows of the broadcast stream, and return the output rows."""
        return self.send_all({self._shared().name: rows})

    def broadcast_rows(self) -> dict[Any, Any]:
        """Return the rows of the broadcast stream as handlers read them, by their key."""
        name, keeper = self._shared().name, self._operator.keeper
        kept = keeper().read(self._open().shared(name)) if keeper is not None else {}
        return {key: row.row for key, row in kept.items() if not row.gone}

    def at(self, now: dt.datetime | int) -> list[dict[str, Any]]:
        """Move the processing time, run a batch without events, and return the output rows."""
        self.set_clocks(now=now)
        return self._run([])

    def watermark(self, at: dt.datetime | int) -> list[dict[str, Any]]:
        """Move the watermark, run a batch without events, and return the output rows."""
        self.set_clocks(watermark=at)
        return self._run([])

    def set_clocks(
        self, *, now: dt.datetime | int | None = None, watermark: dt.datetime | int | None = None
    ) -> None:
        """Move the clocks for the next batch, without running a batch.

        Raises:
            Invalid: A clock would move backwards, or no stream has a watermark.
        """
        if watermark is not None and not self._options.event_time:
            raise Invalid(
                "the watermark cannot be moved, because no stream has an event-time column",
                code="HF-E2403",
                hint="name the event-time column: Harness(…, time=…)",
            )
        if now is not None:
            self._now_ms = _forward(ms_of(now), self._now_ms, "the processing time")
        if watermark is not None:
            self._watermark_ms = _forward(ms_of(watermark), self._watermark_ms, "the watermark")

    # Looking

    def state(self, *key: Any) -> dict[str, Any]:
        """Return the current value of each state of a key, without changing it or renewing its TTL."""
        states = [state for state in self._definition.states if state.name != SETTLED]
        return read_state(states, self._keys(key), self._moment())

    def timers(self, *key: Any) -> tuple[Timer, ...]:
        """Return the timers of a key, in the order of their times."""
        return read_timers(self._keys(key))

    def keys(self) -> list[tuple[Any, ...]]:
        """Return all keys with a row in the store, including those with only expired values, in any order."""
        run = self._open().rows()
        columns = [run.column(f"key:{at}").to_pylist() for at in range(len(self._by))]
        return list(zip(*columns, strict=True))

    def totals(self) -> Totals:
        """Count the keys, timers, and entries of each state in the store, including expired ones.

        The metrics of a query have the same counts.
        """
        groups = range(self._options.key_groups)
        return self._partition(self._store).totals(groups, self._moment())[0]

    @property
    def inspect(self) -> Inspection:
        """Return the store, its partition, and the layout of the state."""
        store = self._store
        return Inspection(store, self._lane, self._definition, self._moment(), lambda: self._partition(store))

    # Restarts

    def restart(
        self,
        processor: Keyed | KeyedTable | None = None,
        *,
        drop: Iterable[str] = (),
        key_groups: int | None = None,
        instances: int | None = None,
    ) -> None:
        """Restart from the stored state, with the same processor or a new version of it.

        An operator may be restarted with a different number of instances; its lists are redistributed.

        Raises:
            Invalid: The new version cannot read the stored state; the old version stays in use.
        """
        before = dict(self.__dict__)
        try:
            if key_groups is not None and key_groups != self._options.key_groups:
                self._options = replace(self._options, key_groups=key_groups)
            self._use(self._processor if processor is None else processor, drop=tuple(drop))
            if instances is None and self._options.instances is not None:
                instances = self._options.instances.count
            if instances is not None:
                # The shares of the instances depend on the states of the new version.
                self._options = replace(self._options, instances=self._settled(instances))
                self._use(self._processor)
            self._open()
        except HoldfastError:
            self.__dict__.update(before)
            raise

    def over(self, store: MemoryStore) -> Harness:
        """Return a copy of this harness, including its clocks, on the state in a different store."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy._store = store
        copy.late_events, copy.failed_events = list(self.late_events), list(self.failed_events)
        return copy

    def cleaned(self) -> Harness:
        """Return a harness on a copy of the state without expired values, as a savepoint has it."""
        copy = self.over(self._store.snapshot())
        copy._open().fold(range(self._options.key_groups), self._moment())
        return copy

    # Inside

    def _shared(self) -> Broadcast:
        if self._broadcast is None:
            raise NotFound(
                "the harness has no broadcast stream",
                code="HF-E3065",
                hint="pass a broadcast stream: Harness(…, broadcast=…)",
            )
        return self._broadcast

    def _check_instances(self, processor: Keyed | KeyedTable, instances: int | None) -> None:
        operates = isinstance(processor, Operator)
        if operates and instances is None:
            raise Invalid(
                "an hf.Operator needs the number of instances",
                code="HF-E2404",
                where="Harness(…, instances=…)",
                found=f"{type(processor).__name__} without instances=",
                hint="pass the number of instances, as in Harness(…, instances=2)",
            )
        if not operates and instances is not None:
            raise Invalid(
                "only an hf.Operator has instances",
                code="HF-E2530",
                where="Harness(…, instances=…)",
                found=f"{type(processor).__name__}, which is not an hf.Operator",
                hint='remove instances=, and name the key columns, as in by="customer"',
            )
        if instances is None and not self._by:
            raise Invalid(
                "no key column given",
                code="HF-E2296",
                hint='name the columns of the key: by="customer"',
            )

    def _settled(self, count: int) -> Instances:
        """Return the instances of the next run, with redistributed lists if the number changes."""
        partition = self._open()
        keys = partition.touch([], partition.rows())
        before = next(iter(settled_counts(keys)), count)
        shares = None
        if before != count:
            shares = redistributed(keys, self._definition.states, before, count)
        return Instances(self._options.name, count, shares)

    def _use(self, processor: Keyed | KeyedTable, drop: tuple[str, ...] = ()) -> None:
        self._processor = processor
        self._definition: ProcessorDefinition = definition_of(
            processor, list(self._schemas), None if self._broadcast is None else self._broadcast.name
        )
        if drop:
            self._options = replace(self._options, drop=drop)
        streams = [self._stream(name) for name in self._schemas]
        self._operator = assemble(
            processor, self._definition, streams, self._output, self._options, self._now_ms, self._broadcast
        )
        layout = self._operator.lane.layout
        self._periods = continued(self._periods, layout)
        layout = replace(layout, periods=self._periods)
        self._operator = replace(self._operator, lane=replace(self._operator.lane, layout=layout))
        self._lane = self._operator.lane
        self._splitter = splitter_of(processor, self._definition, streams, self._options)

    def _stream(self, name: str) -> InputStream:
        """Return a stream as it reaches the state: its events, or the combined events."""
        combined = getattr(self._processor, "combined", None) if self._definition.combines else None
        schema = schema_of(combined or self._schemas[name])
        time = self._times.get(name)
        return InputStream(name, schema, self._by, time if time in schema.names else None)

    def _run(self, packets: Sequence[Packet]) -> list[dict[str, Any]]:
        packets = [*self._touching(), *packets]
        store = self._store.snapshot()
        moment = self._moment()
        waking = store.waking(moment.watermark_ms, moment.now_ms)
        running = self._operator.passes(self._partition(store))
        rows: list[dict[str, Any]] = []
        for answer in running.run(packets, waking, moment):
            if answer.rows is not None:
                rows += answer.rows.to_pylist()
        self._store = store
        self._batch_id += 1
        return [row for row in map(self._sorted_out, rows) if row is not None]

    def _sorted_out(self, row: dict[str, Any]) -> dict[str, Any] | None:
        side, _, event, error = (row.pop(name) for name in SIDE_COLUMNS)
        if side is None:
            return row
        fields = json.loads(event)
        if side == "late":
            self.late_events.append(fields)
        else:
            self.failed_events.append({**fields, "error": error})
        return None

    def _packed(self, at: int, rows: Sequence[Mapping[str, Any]]) -> list[Packet]:
        stream = self._lane.streams[at]
        table = self._table(stream.name, rows)
        if self._definition.combines:
            combine = Combiner(self._processor, stream.schema)
            table = pa.Table.from_batches(combine(table.to_batches()), stream.schema)
        keys = zip(*(table.column(name).to_pylist() for name in stream.keys), strict=True)
        hashes = np.array([self._hash(key) for key in keys], np.uint64).view(np.int64)
        batches = table.append_column(HASH, pa.array(hashes)).combine_chunks().to_batches()
        if self._splitter is not None and self._splitter.timed:
            now = pa.array(np.full(len(hashes), self._now_ms))
            batches = [batch.append_column(NOW, now) for batch in batches]
        packer = self._packer(at)
        divided = enumerate(self._divided(batches))
        return self._unpacked(packed for seq, batch in divided for packed in packer.packets([batch], 0, seq))

    def _unpacked(self, packed: Iterable[pa.RecordBatch]) -> list[Packet]:
        return [packet for batch in packed for packet in packets_in(batch, self._lane.layout.numbering)]

    def _packer(self, at: int) -> Packer:
        layout, instances = self._lane.layout, self._options.instances
        return Packer(self._lane.streams[at], at, layout, self._splitter, instances)

    def _touching(self) -> list[Packet]:
        """Return the packets that activate all instances in each batch."""
        if self._options.instances is None:
            return []
        return self._unpacked([self._packer(0).touching()])

    def _divided(self, batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """Return the events divided as by several tasks, for split hot keys."""
        if self._splitter is None:
            return list(batches)
        step = self._split_rows
        return [batch.slice(at, step) for batch in batches for at in range(0, batch.num_rows, step)]

    def _spread(self, broadcast: Broadcast, rows: Sequence[Mapping[str, Any]]) -> list[Packet]:
        table = self._in_columns(broadcast.name, broadcast.schema, rows)
        spreader = Spreader(broadcast.schema, len(self._lane.streams), self._lane.layout)
        batch = table.combine_chunks().to_batches()[0]
        return self._unpacked(spreader.packets(batch, 0, 0))

    def _table(self, stream: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        instances = self._options.instances
        if instances is not None:
            rows = [{**row, INSTANCE: at % instances.count} for at, row in enumerate(rows)]
        return self._in_columns(stream, schema_of(self._schemas[stream]), rows)

    @staticmethod
    def _in_columns(stream: str, schema: pa.Schema, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        try:
            return table_of([dict(row) for row in rows], schema)
        except Unfit as error:
            why = error.why
            raise Invalid(
                "an event does not match the columns of its stream",
                code="HF-E2405",
                where=f"event {error.at + 1} of stream {stream}",
                found=why.found or why.fact,
                expected=why.expected,
                hint="pass a dict with a value for each column of `events`",
            ) from error

    def _keys(self, key: Sequence[Any]) -> Keys:
        if len(key) != len(self._by):
            raise Invalid(
                "wrong number of key values",
                code="HF-E2406",
                found=repr(key),
                expected=f"a value for each of {', '.join(self._by)}",
                hint="pass one argument per key column: harness.state(7, 'east')",
            )
        schema = pa.schema([self._lane.streams[0].schema.field(name) for name in self._by])
        table = table_of([tuple(key)], schema)
        h = np.array([self._hash(tuple(column[0].as_py() for column in table.columns))], np.uint64)
        if self._options.placement is not None:
            h = self._options.placement.moved(table, h)
        partition = self._open(group_of(h, self._options.key_groups).tolist())
        keys = partition.touch([(h, table)], empty_run(self._lane.layout.form.tables[""]))
        if keys.missing[0]:
            raise NotFound(
                "the key has no state",
                code="HF-E3066",
                found=", ".join(map(repr, key)),
                hint="list the keys with state: harness.keys()",
            )
        return keys

    def _hash(self, key: tuple[Any, ...]) -> int:
        return 0 if self._options.instances is not None else _hash(key)

    def _open(self, groups: Sequence[int] | None = None) -> Partition:
        """Return the state with these groups open, or with all."""
        partition = self._partition(self._store)
        partition.open(range(self._options.key_groups) if groups is None else groups, self._moment())
        return partition

    def _partition(self, store: MemoryStore) -> Partition:
        return Partition(self._lane.layout, store, token=lambda: next(self._tokens).to_bytes(8, "big"))

    def _moment(self) -> Moment:
        return Moment(self._now_ms, self._watermark_ms, self._batch_id)

    def _number(self, stream: str) -> int:
        if stream not in self._schemas:
            raise NotFound(
                "unknown stream",
                code="HF-E3067",
                found=stream,
                expected=", ".join(self._schemas),
                hint="name a stream of the harness with stream=…",
            )
        return list(self._schemas).index(stream)


def _hash(key: tuple[Any, ...]) -> int:
    """Return a hash of a key; collisions are allowed, because keys with equal hashes are compared."""
    plain = tuple(_plain(value) for value in key)
    return int.from_bytes(hashlib.blake2b(repr(plain).encode(), digest_size=8).digest(), "big")


def _plain(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return "nan" if math.isnan(value) else value + 0.0


def _forward(moved: int, before: int | None, what: str) -> int:
    if before is not None and moved < before:
        raise Invalid(
            f"{what} cannot move backwards",
            code="HF-E2407",
            found=str(moved),
            expected=f"{before} or later",
            hint="create a new Harness to start at an earlier time",
        )
    return moved
