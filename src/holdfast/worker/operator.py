"""An operator in a task: collects the packets of a partition, runs them and returns the results.

The serializer of `transformWithState` splits rows one by one and writes a batch for each group, most of them
empty. In a task with a Holdfast operator, the input and output streams carry tables instead. Spark's loop
over the groups gets no groups; Spark makes one call for timers and one at the end.

Packets are collected until a size limit or the end of the input, so that a partition is usually one pass.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from holdfast.errors import Invalid
from holdfast.worker.interface import Moment, Runner
from holdfast.worker.packets import WAKE, Lane, answer_schema
from holdfast.worker.passes import Packet, Pass, TaskOutput, counted, packets_in, totalled
from holdfast.worker.runtime.replay import TO_THE_END, TO_THE_LAST_EVENT
from holdfast.worker.state.blob_store import RETAINED, BlobReader, Blobs, BlobStore, BlobTask, database_at
from holdfast.worker.state.layout import Layout, periods_from_text
from holdfast.worker.state.local_copies import Copies, copies_place
from holdfast.worker.state.partition import Partition
from holdfast.worker.state.store import MemoryStore, PartitionStore
from holdfast.worker.task_facts import batch_number, give_back, local_property, partition_id, prepare

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorApiClient

    from holdfast.worker.runtime.broadcast import Keeper


class Exchanging(Protocol):
    """A reader of a task's input rows that returns results as tables."""

    def receive(self, arriving: Iterator[pa.RecordBatch]) -> None:
        """Set the input of the task."""
        ...

    def answers(self) -> Iterator[pa.RecordBatch]:
        """Return the results since the last call; called after each call from Spark."""
        ...


class _Graft:
    """A replacement for two methods of Spark's serializer, which leaves other tasks unchanged."""

    def __init__(self) -> None:
        self._task: Exchanging | None = None
        self._is_in = False

    def expect(self, task: Exchanging) -> None:
        self._task = task
        if not self._is_in:
            self._put_in()
            self._is_in = True

    def _put_in(self) -> None:
        from pyspark.sql.pandas import serializers

        # Up to Spark 4.2 the serializer finds the groups; in later versions the loop does, over plain tables.
        of_groups = getattr(serializers, "TransformWithStateInPySparkRowSerializer", None)
        spoken_for: Any = of_groups or serializers.ArrowStreamSerializer
        load, dump = spoken_for.load_stream, spoken_for.dump_stream

        def load_stream(serializer: Any, stream: IO[bytes]) -> Iterator[Any]:
            task, self._task = self._task, None
            serializer.holdfast_task = task
            if task is None:
                groups: Iterator[Any] = load(serializer, stream)
                return groups
            task.receive(iter(pa.ipc.open_stream(stream)))
            return _no_groups() if of_groups is not None else iter(())

        def dump_stream(serializer: Any, calls: Iterator[Any], stream: IO[bytes]) -> None:
            task = getattr(serializer, "holdfast_task", None)
            if task is None:
                dump(serializer, calls, stream)
            else:
                _write(task, calls, stream)

        spoken_for.load_stream, spoken_for.dump_stream = load_stream, dump_stream


_graft = _Graft()


def expect(task: Exchanging) -> None:
    """Make the task that this worker is setting up exchange tables with Spark.

    Call it while the worker unpickles the task's function, because the serializer's methods are looked up
    after that. Other functions are not affected.
    """
    _graft.expect(task)


def _no_groups() -> Iterator[Any]:
    """Yield the input of Spark's loop, up to Spark 4.2, for a partition without rows."""
    from pyspark.sql.streaming.stateful_processor_util import (
        TransformWithStateInPandasFuncMode as Mode,
    )

    yield Mode.PROCESS_TIMER, None, None
    yield Mode.COMPLETE, None, None


def _write(task: Exchanging, calls: Iterator[Any], stream: IO[bytes]) -> None:
    """Run Spark's calls and write the task's results after each call."""
    from pyspark.serializers import write_int
    from pyspark.sql.pandas.serializers import SpecialLengths

    answers = (answer for _ in calls for answer in task.answers())
    first = next(answers, None)
    if first is None:
        return
    # Spark waits for this marker until the first result exists, so that an error before it can be reported.
    write_int(SpecialLengths.START_ARROW_STREAM, stream)  # type: ignore[no-untyped-call]  # it carries no types
    with pa.RecordBatchStreamWriter(stream, _column(first).schema) as writer:
        for answer in chain((first,), answers):
            writer.write_batch(_column(answer))


def _column(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch as a single struct column, the format that Spark expects."""
    return pa.RecordBatch.from_arrays(
        [pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))], names=["_0"]
    )


# Packets are processed when their size reaches this share of the memory: a pass takes about twenty times
# their bytes.
_PACKETS_SHARE = 64
# The number of partitions of a query's operators; Spark passes its settings to the tasks.
_PARTITIONS = "spark.sql.shuffle.partitions"
_RETAINED = "spark.sql.streaming.minBatchesToRetain"
_QUERY_ID = "sql.streaming.queryId"
# The property by which a start by Holdfast passes to the tasks the database for an operator's blobs.
BLOBS_PROPERTY = "holdfast.blobs."
IN_DATABASE, IN_STORE = "database", "store"
# The periods in which an operator's state had each schema, as recorded by a start by Holdfast.
PERIODS_PROPERTY = "holdfast.periods."
# The property by which a start by Holdfast passes to the tasks that it compared the names of operators.
COMPARED_PROPERTY = "holdfast.operators.compared"
# The property by which a bootstrap marks its batch as a history.
HISTORY_PROPERTY = "holdfast.history"
# A partition with more key groups is not counted: reading so many records in each batch would take too long.
_MOST_COUNTED = 512


@dataclass(frozen=True, slots=True)
class TaskOperator:
    """A keyed operator in Spark's tasks.

    Attributes:
        lane: The configuration of the workers.
        runner: A factory of the runner that calls the processor, called once per task.
        keeper: A factory of the reader of the broadcast stream, or None without a broadcast stream.
        event_time: Whether any stream has a watermark.
        blobs: The database for blobs of the operator's state, or None.
        has_timers: Whether the processor has timers.
    """

    lane: Lane
    runner: Callable[[], Runner]
    keeper: Callable[[], Keeper] | None
    event_time: bool
    blobs: Blobs | None = None
    has_timers: bool = False

    def store(self, spark_store: PartitionStore) -> PartitionStore:
        """Return the store of a task, with blobs in a database if configured.

        Raises:
            Invalid: The operator has blobs in a database that the checkpoint does not record.
            Unsupported: The client library of the database is not installed.
        """
        name = self.lane.layout.operator
        if self.blobs is None:
            return BlobReader(spark_store, name)
        place = local_property(f"{BLOBS_PROPERTY}{name}")
        query_id, batch_id = local_property(_QUERY_ID), batch_number()
        server = self.blobs.server
        database = database_at(server)
        if place == IN_STORE:
            return BlobReader(spark_store, name, database)
        if place != IN_DATABASE or query_id is None or batch_id is None:
            raise Invalid(
                f"keyed state in {server.product} requires a query started by Holdfast",
                code="HF-E2470",
                where=f"operator {name}",
                hint="start the query with hf.sink(…), hf.adopt(…) or an hf.job",
            )
        retained = local_property(_RETAINED)
        kept = int(retained) if retained is not None and retained.isdigit() else RETAINED
        task = BlobTask(name, query_id, batch_id, fresh_token().hex(), kept)
        return BlobStore(spark_store, self.blobs, task, database)

    def passes(self, partition: Partition) -> Pass:
        """Return a pass over the packets of a partition."""
        return Pass(self.lane, partition, self.runner(), self.keeper() if self.keeper is not None else None)

    def one_group(
        self, store: PartitionStore, group: int, packets: Sequence[Packet], moment: Moment
    ) -> Iterator[TaskOutput]:
        """Process a single group on a store that contains only this group, without a working copy."""
        partition = Partition(layout_with_history(self.lane.layout), self.store(store), token=fresh_token)
        arrived = [packet for packet in packets if packet.stream != WAKE]
        return self.passes(partition).run(arrived, [group], moment)


class Task:
    """One Spark task: its packets so far and the state of its partition."""

    def __init__(self, operator: TaskOperator, store: PartitionStore, moment: Moment) -> None:
        prepare()
        self.moment = moment
        self._layout = layout = layout_with_history(operator.lane.layout)
        self._limit = layout.memory_bytes // _PACKETS_SHARE
        # Without a watermark, ticks wake all groups.
        self._has_two_clocks = operator.has_timers and moment.watermark_ms is not None
        self._packets: list[Packet] = []
        self._waking: set[int] = set()
        self._size = 0
        self._partition = Partition(layout, operator.store(store), token=fresh_token, copies=_copies(layout))
        self._pass = operator.passes(self._partition)

    def collect(self, packets: Iterable[Packet]) -> Iterator[TaskOutput]:
        """Collect packets, which arrive group by group, and process earlier ones when the size limit is
        reached.
        """
        for packet in packets:
            if self._size >= self._limit and packet.group != self._packets[-1].group:
                # Not within a group, because broadcast rows come before the group's events.
                yield from self._answers(())
            if packet.stream == WAKE:
                self._waking.add(packet.group)
            else:
                self._packets.append(packet)
                self._size += 0 if packet.payload is None else len(packet.payload)

    def finish(self, waking: Sequence[int]) -> Iterator[TaskOutput]:
        """Process the remaining packets and the groups with due timers.

        Args:
            waking: The groups that Spark reports as due. With a watermark Spark ignores processing time.
        """
        yield from self._answers([*waking, *(self._due() if self._has_two_clocks else ())])
        yield from self._totals()
        self._partition.close()
        give_back(self._layout.memory_bytes)

    def _answers(self, waking: Sequence[int]) -> Iterator[TaskOutput]:
        packets, self._packets, self._size = self._packets, [], 0
        # The timers of a group that was processed with its packets have already fired.
        woken, self._waking = self._waking | set(waking), set()
        if packets or woken:
            yield from self._pass.run(packets, woken, self.moment)

    def _due(self) -> list[int]:
        """Return the groups with a due processing-time timer."""
        groups = _groups(self._layout, self._partition, self.moment)
        if groups is None:
            groups = range(self._layout.key_groups)
        return self._partition.due_groups(groups, self.moment)

    def _totals(self) -> Iterator[TaskOutput]:
        """Yield the totals of the partition, after counting one key group written by an older Holdfast."""
        groups = _groups(self._layout, self._partition, self.moment)
        if groups is None or len(groups) > _MOST_COUNTED:
            return
        counts, uncounted = totalled(self._partition, groups, self.moment)
        group = next((group for group in uncounted if group not in self._partition.opened), None)
        if group is not None:
            self._partition.open([group], self.moment)
            self._partition.write(self.moment)
            counts = {**totalled(self._partition, groups, self.moment)[0], **counted(self._partition)}
        yield TaskOutput(counts=counts)


def _groups(layout: Layout, partition: Partition, moment: Moment) -> Sequence[int] | None:
    """Return the key groups that may be in the task's partition, or None if the partition count is unknown.

    The task's number is that of its partition, unless the operator is part of a union. A store has only its
    own groups, so groups of other partitions have no effect.
    """
    own, setting = partition_id(), local_property(_PARTITIONS)
    if own is None or setting is None or not setting.isdigit():
        return None
    numbering, count = layout.numbering, int(setting)
    own %= count
    if partition.opened:
        own = numbering.partition_of(next(iter(partition.opened)), count)
    groups = numbering.groups_in(own, count, layout.key_groups)
    if partition.opened <= set(groups) and (partition.opened or partition.has_any(groups, moment)):
        return groups
    return range(layout.key_groups)


def layout_with_history(layout: Layout) -> Layout:
    """Return a layout extended by what the start of the query has read from the checkpoint."""
    text = local_property(f"{PERIODS_PROPERTY}{layout.operator}")
    periods = layout.periods if text is None else periods_from_text(text)
    return replace(layout, periods=periods, compared=local_property(COMPARED_PROPERTY) is not None)


def fresh_token() -> bytes:
    """Return eight random bytes, unique per write, also between attempts at the same batch."""
    return os.urandom(8)


def _copies(layout: Layout) -> Copies | None:
    """Return the working copies of this partition, in a directory that Spark deletes with the executor."""
    local, query = os.environ.get("SPARK_LOCAL_DIRS"), local_property(_QUERY_ID)
    if not local or not query:
        return None
    place = copies_place(Path(local.split(",")[0])) / query / layout.operator / str(partition_id())
    # A schema that is used again may have other TTLs than the files written earlier.
    times = len([period for period in layout.periods if period.mark == layout.form.fingerprint.hex()])
    form = layout.form.fingerprint + bytes(max(0, times - 1))
    return Copies(place, form, fresh_token().hex())


class Dispatcher:
    """The handler of Spark's calls for one operator in a task."""

    def __init__(self, operator: TaskOperator) -> None:
        self._operator = operator
        self._arriving: Iterator[pa.RecordBatch] = iter(())
        self._answers: Iterator[TaskOutput] = iter(())

    def receive(self, arriving: Iterator[pa.RecordBatch]) -> None:
        """Set the input of the task."""
        self._arriving = arriving

    def answers(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows and counts of Spark's last call."""
        schema = answer_schema(self._operator.lane.output)
        answers, self._answers = self._answers, iter(())
        names = self._operator.lane.count_names
        for answer in answers:
            yield answer_batch(answer, schema, names)

    def __call__(self, client: StatefulProcessorApiClient, mode: Any, _key: Any, _rows: Any) -> Iterator[Any]:
        """Handle one call from Spark."""
        from pyspark.sql.streaming.stateful_processor_api_client import (
            StatefulProcessorHandleState as State,
        )
        from pyspark.sql.streaming.stateful_processor_util import (
            TransformWithStateInPandasFuncMode as Mode,
        )

        from holdfast.worker.state.spark_store import declare_state

        if mode == Mode.PRE_INIT:
            declare_state(client, self._operator.lane.layout.numbering)
        elif mode == Mode.PROCESS_TIMER:
            self._answers = self._run(client)
        else:
            client.set_handle_state(State.TIMER_PROCESSED)
            client.remove_implicit_key()
            client.set_handle_state(State.CLOSED)
        return iter(())

    def _run(self, client: StatefulProcessorApiClient) -> Iterator[TaskOutput]:
        """Run a task: process its packets, then the groups with due timers."""
        from pyspark.sql.streaming.stateful_processor_api_client import (
            ExpiredTimerIterator,
            StatefulProcessorHandleState,
        )

        from holdfast.worker.state.spark_store import PipelinedStore

        numbering = self._operator.lane.layout.numbering
        store = PipelinedStore(client, numbering)
        store.declare()
        client.set_handle_state(StatefulProcessorHandleState.INITIALIZED)
        watermark = client._get_watermark_timestamp() if self._operator.event_time else None
        replay = TO_THE_LAST_EVENT if local_property(HISTORY_PROPERTY) else None
        moment = Moment(client._get_batch_timestamp(), watermark, batch_number(), replay=replay)
        task = Task(self._operator, store, moment)
        for batch in self._arriving:
            yield from task.collect(packets_in(batch, numbering))
        client.set_handle_state(StatefulProcessorHandleState.DATA_PROCESSED)
        waking: list[int] = []
        if moment.watermark_ms is not None:
            timers = ExpiredTimerIterator(client, moment.watermark_ms)
            waking = [numbering.group_at(int(number)) for (number,), _ in timers]
        yield from task.finish(waking)


class HistoryTask:
    """The function of Spark's tasks over the packets of some key groups, in the order of the groups.

    Each key starts with empty state. Its events are handled in the order of their event times, each after the
    timers that were due before it; at the end all timers in event time fire.
    """

    def __init__(self, operator: TaskOperator, now_ms: int) -> None:
        self._operator = operator
        self._now_ms = now_ms

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the output rows of a task."""
        operator = self._operator
        moment = Moment(self._now_ms, 0 if operator.event_time else None, None, replay=TO_THE_END)
        task = Task(operator, MemoryStore(), moment)
        for batch in batches:
            for output in task.collect(packets_in(batch, operator.lane.layout.numbering)):
                if output.rows is not None:
                    yield output.rows
        for output in task.finish(()):
            if output.rows is not None:
                yield output.rows


def answer_batch(answer: TaskOutput, schema: pa.Schema, names: Sequence[str]) -> pa.RecordBatch:
    """Return a result as one row for Spark: a list of output rows and a list of counts."""
    of_rows = schema.field("rows").type
    if answer.rows is None:
        rows = pa.nulls(1, of_rows)
    else:
        struct = pa.StructArray.from_arrays(answer.rows.columns, fields=list(of_rows.value_type))
        rows = pa.ListArray.from_arrays(pa.array([0, len(struct)], pa.int32()), struct)
    counts = pa.array([answer.listed(names)], schema.field("counts").type)
    return pa.RecordBatch.from_arrays([rows, counts], schema=schema)
