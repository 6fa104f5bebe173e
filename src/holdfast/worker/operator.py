"""What runs inside a transformWithState task: collect a partition's packets, run them, answer.

Spark calls once for each key group, then once for timers, then once at the end. The packets are only
collected until there are enough of them or no more come, so that a whole partition is one piece of work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.worker.interface import Moment, Runner
from holdfast.worker.kept.cleaning import Cleaner
from holdfast.worker.kept.copies import Copies
from holdfast.worker.kept.loading import Evolution
from holdfast.worker.kept.partition import Partition
from holdfast.worker.kept.store import Store
from holdfast.worker.lane import COUNTS, WAKE, Lane
from holdfast.worker.memory import give_back, prepare
from holdfast.worker.packer import batch_number
from holdfast.worker.passes import Answer, Packet, Pass

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorApiClient

    from holdfast.worker.running.broadcast import Keeper


# Packets are worked off when they have this share of the memory: with what is made of them, a pass takes
# some twenty times their bytes.
_PACKETS_SHARE = 64


@dataclass(frozen=True, slots=True)
class Parts:
    """What an operator is made of besides its lane; made anew in each task.

    Attributes:
        runner: Makes what calls the processor.
        evolution: Makes what reads older forms.
        clean: Takes out what has expired.
        keeper: Makes what takes in the rows of the broadcast stream, where there is one.
    """

    runner: Callable[[], Runner]
    evolution: Callable[[], Evolution]
    clean: Cleaner
    keeper: Callable[[], Keeper] | None = None

    def passes(self, lane: Lane, partition: Partition) -> Pass:
        """What works off the packets of a partition."""
        return Pass(lane, partition, self.runner(), self.keeper() if self.keeper is not None else None)


class Operator:
    """The function that Spark calls in place of its own dispatcher; unpickled anew for each task."""

    def __init__(self, lane: Lane, parts: Parts, *, event_time: bool) -> None:
        self._lane = lane
        self._parts = parts
        self.event_time = event_time
        self._task: _Task | None = None

    def call(self, client: StatefulProcessorApiClient, mode: Any, _key: Any, rows: Any) -> Iterator[Any]:
        """Answer one of Spark's calls."""
        from pyspark.sql.streaming.stateful_processor_api_client import (  # noqa: PLC0415 - Spark's worker
            ExpiredTimerIterator,
            StatefulProcessorHandleState,
        )
        from pyspark.sql.streaming.stateful_processor_util import (  # noqa: PLC0415 - as above
            TransformWithStateInPandasFuncMode,
        )

        from holdfast.worker.kept.spark_store import PipelinedStore  # noqa: PLC0415 - as above

        states, modes = StatefulProcessorHandleState, TransformWithStateInPandasFuncMode
        if mode == modes.PRE_INIT:
            client.set_handle_state(states.PRE_INIT)
            PipelinedStore(client).declare()
            return iter(())
        if self._task is None:
            store = PipelinedStore(client)
            store.declare()
            client.set_handle_state(states.INITIALIZED)
            self._task = _Task(self._lane, self._parts, store, self._moment(client))
        if mode == modes.PROCESS_DATA:
            return self._task.collect(packets_of(rows))
        if mode == modes.PROCESS_TIMER:
            client.set_handle_state(states.DATA_PROCESSED)
            waking: list[int] = []
            watermark = self._task.moment.watermark_ms
            if self.event_time and watermark is not None:
                waking = [int(found[0]) for found, _ in ExpiredTimerIterator(client, watermark)]
            return self._task.finish(waking)
        client.set_handle_state(states.TIMER_PROCESSED)
        client.remove_implicit_key()
        client.set_handle_state(states.CLOSED)
        return iter(())

    def one_group(
        self, store: Store, group: int, packets: Sequence[Packet], moment: Moment
    ) -> Iterator[Answer]:
        """Work off a single group over a store that holds nothing else, without a working copy."""
        partition = open_partition(self._lane, self._parts, store, None)
        arrived = [packet for packet in packets if packet.stream != WAKE]
        return self._parts.passes(self._lane, partition).run(arrived, [group], moment)

    def _moment(self, client: StatefulProcessorApiClient) -> Moment:
        watermark = client._get_watermark_timestamp() if self.event_time else None
        return Moment(client._get_batch_timestamp(), watermark, batch_number())


class _Task:
    """One task of Spark's: the packets so far, and the partition's state."""

    def __init__(self, lane: Lane, parts: Parts, store: Store, moment: Moment) -> None:
        prepare()
        self.moment = moment
        self._lane = lane
        self._limit = lane.memory_bytes // _PACKETS_SHARE
        self._packets: list[Packet] = []
        self._waking: set[int] = set()
        self._size = 0
        self._partition = open_partition(lane, parts, store, _copies(lane))
        self._pass = parts.passes(lane, self._partition)

    def collect(self, packets: Sequence[Packet]) -> Iterator[Any]:
        """Keep packets of a group; work the groups before it off if they have become many."""
        answers: Iterator[Any] = iter(())
        if self._size >= self._limit and packets and packets[0].group != self._packets[-1].group:
            # Not in the middle of a group: what is broadcast to it comes before its events.
            answers = self._answers(())
        for packet in packets:
            if packet.stream == WAKE:
                self._waking.add(packet.group)
            else:
                self._packets.append(packet)
                self._size += len(packet.payload or b"")
        return answers

    def finish(self, waking: Sequence[int]) -> Iterator[Any]:
        """Work off what is left, with the groups whose timers are due."""
        yield from self._answers(waking)
        self._partition.close()
        give_back(self._lane.memory_bytes)

    def _answers(self, waking: Sequence[int]) -> Iterator[Any]:
        """Take what there is now, to be worked off when the answers are asked for."""
        packets, self._packets, self._size = self._packets, [], 0
        # A group that was worked off with its packets has fired its timers then.
        woken, self._waking = self._waking | set(waking), set()
        if not packets and not woken:
            return iter(())
        return (answer_row(each) for each in self._pass.run(packets, woken, self.moment))


def open_partition(lane: Lane, parts: Parts, store: Store, copies: Copies | None) -> Partition:
    """A partition's state over a store."""
    return Partition(
        lane.layout,
        store,
        token=fresh_token,
        evolution=parts.evolution(),
        clean=parts.clean,
        copies=copies,
    )


def packets_of(rows: Any) -> list[Packet]:
    """The rows of one key group as Spark hands them over."""
    return [Packet(row.key_group, row.stream, row.part, row.seq, row.payload) for row in rows]


def answer_row(answer: Answer) -> Any:
    """An answer as the row that Spark takes."""
    from pyspark.sql import Row  # noqa: PLC0415 - Spark's worker

    counts = [answer.counts.get(name, 0) for name in COUNTS] if answer.counts else None
    return Row(payload=answer.payload, counts=counts)


def fresh_token() -> bytes:
    """Eight bytes that were never made before, not by another try at the same batch either."""
    return os.urandom(8)


def _property(name: str) -> str | None:
    from pyspark import TaskContext  # noqa: PLC0415 - Spark's worker

    context = TaskContext.get()
    return context.getLocalProperty(name) if context is not None else None


def _copies(lane: Lane) -> Copies | None:
    """A directory of this partition's own, below those that Spark removes with the executor."""
    from pyspark import TaskContext  # noqa: PLC0415 - Spark's worker

    context = TaskContext.get()
    local, query = os.environ.get("SPARK_LOCAL_DIRS"), _property("sql.streaming.queryId")
    if context is None or not local or not query:
        return None
    place = Path(local.split(",")[0]) / "holdfast" / query / lane.layout.operator / str(context.partitionId())
    return Copies(place, lane.layout.form.fingerprint, fresh_token().hex())
