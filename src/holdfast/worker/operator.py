"""What an operator runs in a task: collect a partition's packets, run them, answer.

The packets are only collected until there are enough of them or no more come, so that a whole partition is
one piece of work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import Invalid
from holdfast.worker.interface import Moment, Runner
from holdfast.worker.lane import WAKE, Lane
from holdfast.worker.passes import Answer, Packet, Pass, counted, totalled
from holdfast.worker.process_memory import give_back, prepare
from holdfast.worker.state.external.blob_database import database_at
from holdfast.worker.state.external.blob_store import RETAINED, BlobReader, Blobs, BlobStore, BlobTask
from holdfast.worker.state.local_copies import Copies
from holdfast.worker.state.operator_layout import Layout, periods_from_text
from holdfast.worker.state.partition import Partition
from holdfast.worker.state.store import Store
from holdfast.worker.task_facts import batch_number, local_property, partition_id

if TYPE_CHECKING:
    from holdfast.worker.runtime.features.broadcast import Keeper


# Packets are worked off when they have this share of the memory: with what is made of them, a pass takes
# some twenty times their bytes.
_PACKETS_SHARE = 64
# How many partitions a query's operators have; Spark hands its settings on to the tasks.
_PARTITIONS = "spark.sql.shuffle.partitions"
_RETAINED = "spark.sql.streaming.minBatchesToRetain"
_QUERY_ID = "sql.streaming.queryId"
# What a start by Holdfast tells the tasks of an operator with blobs in a database: where they write theirs.
BLOBS_PROPERTY = "holdfast.blobs."
IN_DATABASE, IN_STORE = "database", "store"
# Through which periods an operator's state has had which form, as a start by Holdfast noted them.
PERIODS_PROPERTY = "holdfast.periods."
# A partition with more key groups is not counted: reading so many records in each batch would take too long.
_MOST_COUNTED = 512


@dataclass(frozen=True, slots=True)
class Operator:
    """What a keyed operator runs in the tasks of Spark.

    Attributes:
        lane: What the workers know.
        runner: Makes what calls the processor, anew in each task.
        keeper: Makes what takes in the rows of the broadcast stream, where there is one.
        event_time: Whether any stream has a watermark.
        blobs: Which blobs of its state are kept in a database, if any.
        has_timers: Whether the processor has timers.
    """

    lane: Lane
    runner: Callable[[], Runner]
    keeper: Callable[[], Keeper] | None
    event_time: bool
    blobs: Blobs | None = None
    has_timers: bool = False

    def store(self, spark_store: Store) -> Store:
        """The store of a task with the blobs that are kept elsewhere.

        Raises:
            Invalid: Blobs are to be written to a database, and the checkpoint does not say so.
            Unsupported: The client for the database is not installed here.
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
                f"keyed state in {server.product} needs a start by Holdfast, to note it in the checkpoint",
                where=f"operator {name}",
                hint="start it with Holdfast: a sink of hf.sink(…) or hf.adopt(…), or an hf.job",
            )
        retained = local_property(_RETAINED)
        kept = int(retained) if retained is not None and retained.isdigit() else RETAINED
        task = BlobTask(name, query_id, batch_id, fresh_token().hex(), kept)
        return BlobStore(spark_store, self.blobs, task, database)

    def passes(self, partition: Partition) -> Pass:
        """What works off the packets of a partition."""
        return Pass(self.lane, partition, self.runner(), self.keeper() if self.keeper is not None else None)

    def one_group(
        self, store: Store, group: int, packets: Sequence[Packet], moment: Moment
    ) -> Iterator[Answer]:
        """Work off a single group over a store that holds nothing else, without a working copy."""
        partition = Partition(told(self.lane.layout), self.store(store), token=fresh_token)
        arrived = [packet for packet in packets if packet.stream != WAKE]
        return self.passes(partition).run(arrived, [group], moment)


class Task:
    """One task of Spark's: the packets so far, and the partition's state."""

    def __init__(self, operator: Operator, store: Store, moment: Moment) -> None:
        prepare()
        self.moment = moment
        self._layout = layout = told(operator.lane.layout)
        self._limit = layout.memory_bytes // _PACKETS_SHARE
        # Without a watermark, ticks wake all groups.
        self._has_two_clocks = operator.has_timers and moment.watermark_ms is not None
        self._packets: list[Packet] = []
        self._waking: set[int] = set()
        self._size = 0
        self._partition = Partition(layout, operator.store(store), token=fresh_token, copies=_copies(layout))
        self._pass = operator.passes(self._partition)

    def collect(self, packets: Iterable[Packet]) -> Iterator[Answer]:
        """Keep packets, which come group by group; work those before off where they have become many."""
        for packet in packets:
            if self._size >= self._limit and packet.group != self._packets[-1].group:
                # Not in the middle of a group: what is broadcast to it comes before its events.
                yield from self._answers(())
            if packet.stream == WAKE:
                self._waking.add(packet.group)
            else:
                self._packets.append(packet)
                self._size += 0 if packet.payload is None else len(packet.payload)

    def finish(self, waking: Sequence[int]) -> Iterator[Answer]:
        """Work off what is left, with the groups whose timers are due.

        Args:
            waking: The groups of which Spark says so. Beside a watermark it knows of no processing time.
        """
        yield from self._answers([*waking, *(self._due() if self._has_two_clocks else ())])
        yield from self._totals()
        self._partition.close()
        give_back(self._layout.memory_bytes)

    def _answers(self, waking: Sequence[int]) -> Iterator[Answer]:
        packets, self._packets, self._size = self._packets, [], 0
        # A group that was worked off with its packets has fired its timers then.
        woken, self._waking = self._waking | set(waking), set()
        if packets or woken:
            yield from self._pass.run(packets, woken, self.moment)

    def _due(self) -> list[int]:
        """The groups with a timer in processing time that is due."""
        groups = _groups(self._layout, self._partition, self.moment)
        if groups is None:
            groups = range(self._layout.key_groups)
        return self._partition.due_groups(groups, self.moment)

    def _totals(self) -> Iterator[Answer]:
        """What the partition holds. In each batch one key group is counted that an older Holdfast wrote."""
        groups = _groups(self._layout, self._partition, self.moment)
        if groups is None or len(groups) > _MOST_COUNTED:
            return
        counts, uncounted = totalled(self._partition, groups, self.moment)
        group = next((group for group in uncounted if group not in self._partition.opened), None)
        if group is not None:
            self._partition.open([group], self.moment)
            self._partition.write(self.moment)
            counts = {**totalled(self._partition, groups, self.moment)[0], **counted(self._partition)}
        yield Answer(counts=counts)


def _groups(layout: Layout, partition: Partition, moment: Moment) -> Sequence[int] | None:
    """The key groups that may be in the task's partition, where Spark tells of how many partitions it is one.

    The task's number is that of its partition, unless the operator is a part of a union. A store has no other
    groups than its own, so groups of other partitions do no harm.
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


def told(layout: Layout) -> Layout:
    """A layout with what the start of the query has noted of its past."""
    text = local_property(f"{PERIODS_PROPERTY}{layout.operator}")
    return layout if text is None else replace(layout, periods=periods_from_text(text))


def fresh_token() -> bytes:
    """Eight bytes that were never made before, not by another try at the same batch either."""
    return os.urandom(8)


def _copies(layout: Layout) -> Copies | None:
    """A directory of this partition's own, below those that Spark removes with the executor."""
    local, query = os.environ.get("SPARK_LOCAL_DIRS"), local_property(_QUERY_ID)
    if not local or not query:
        return None
    place = Path(local.split(",")[0]) / "holdfast" / query / layout.operator / str(partition_id())
    # A form that has come back may have other times to live than the files that it left.
    times = len([period for period in layout.periods if period.mark == layout.form.fingerprint.hex()])
    form = layout.form.fingerprint + bytes(max(0, times - 1))
    return Copies(place, form, fresh_token().hex())
