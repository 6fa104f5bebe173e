"""The keyed state of one partition during one task.

For each key group the store has a log of changes and a base. `GroupTables` has the rows of both as tables,
`PassChanges` adds the changes of passes, and `GroupWriter` encodes them as changes or as new bases.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from holdfast.errors import Invalid, Unsupported
from holdfast.worker.interface import DUE_EVENT, Moment, Outcome
from holdfast.worker.state.group_tables import GroupTables, OpenGroup
from holdfast.worker.state.group_writes import GroupWriter, clocks_of
from holdfast.worker.state.key_index import Keys, resolve
from holdfast.worker.state.layout import ROWS, Layout
from holdfast.worker.state.pass_changes import PassChanges
from holdfast.worker.state.store import PartitionStore, Write
from holdfast.worker.state.tables import Run, concatenated, empty_run, united
from holdfast.worker.state.upkeep import Census, Cleaner, Tally, totals_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdfast.formats.key_groups import Meta
    from holdfast.worker.arrays import Hashes
    from holdfast.worker.state.local_copies import Copies
    from holdfast.worker.state.upkeep import Counts, Totals

# Rows of a broadcast stream have the first hash of their group's range, and an ordinal that no key has.
SHARED_ORD = -1


class Partition:
    """The open key groups of a partition: finds the keys of a pass, collects changes and writes them to the
    store.

    Args:
        layout: The layout of the operator's state.
        store: The store with the committed state.
        token: Returns eight random bytes, unique per write.
        copies: The working copy, or None to read every group from the store.
    """

    def __init__(
        self,
        layout: Layout,
        store: PartitionStore,
        *,
        token: Callable[[], bytes],
        copies: Copies | None = None,
    ) -> None:
        self.tally = Tally()
        self._layout = layout
        self._form = layout.form
        self._store = store
        self._copies = copies
        self._census = Census(layout.form, layout.key_groups)
        self.opened: set[int] = set()  # the groups opened in this task
        self._records: dict[int, Meta | None] = {}  # the records read in this task, updated with its writes
        self._moment = Moment(0, None, None)
        self._open: dict[int, OpenGroup] = {}
        self._tables = GroupTables(layout, store, copies)
        self._levels = self._tables.levels
        cleaner = Cleaner(layout.states)
        self._changes = PassChanges(layout, self._tables, self._open, cleaner, self._census, self.tally)
        self._writer = GroupWriter(layout, self._tables, self._open, cleaner, self._census, self.tally, token)

    def open(self, groups: Sequence[int], moment: Moment) -> None:
        """Open groups, given in ascending order; a group is opened at most once per task.

        Raises:
            Invalid: The groups were written with a different number of groups, or with a schema that cannot
                be converted.
            Corrupt: The stored data cannot be read.
        """
        began = time.perf_counter_ns()
        self._moment = moment
        metas = self._store.metas(groups)
        stale = []
        for group, meta in zip(groups, metas, strict=True):
            if meta is not None and meta.key_groups != self._layout.key_groups:
                raise Invalid(
                    "key_groups differs from the checkpoint, so stored keys would not be found",
                    code="HF-E2343",
                    where=f"operator {self._layout.operator}",
                    found=f"key_groups={self._layout.key_groups}",
                    expected=f"key_groups={meta.key_groups}",
                    hint=f"write hf.keyed(…, key_groups={meta.key_groups})",
                )
            self._open[group] = OpenGroup(meta, self._census.none())
            version = self._tables.versions.get(group)
            if meta is None:
                if version is not None:
                    self._tables.forget(group)
            elif version != meta.token:
                stale.append((group, meta))
        with self._naming_operator():
            self._tables.load(stale, self._open, moment)
            self.tally.loaded_groups += len(stale)
            for group, opened in self._open.items():
                self.opened.add(group)
                self._records[group] = opened.meta
                opened.counts = self._counted(group, opened.meta)
        self.tally.read_ns += time.perf_counter_ns() - began

    def due(self, moment: Moment) -> Run:
        """Return the rows of the keys in open groups that have a due timer."""
        rows = self._levels[ROWS]
        if DUE_EVENT not in rows.schema.names:
            return empty_run(rows.schema)
        runs = []
        for column, name, at in clocks_of(moment):
            if at is None:
                continue
            waking = [
                g for g, opened in self._open.items() if opened.meta and getattr(opened.meta, name) <= at
            ]
            if waking:
                run = rows.until(column, at)
                runs.append(run.take(np.isin(self.groups_of(run.h), waking)))
        return united(runs, rows.schema)

    def touch(self, streams: Sequence[tuple[Hashes, pa.Table]], due: Run) -> Keys:
        """Return the keys of a pass, given by the hashes and key columns of events and by the due rows."""
        began = time.perf_counter_ns()
        with self._naming_operator():
            keys = resolve(self._layout, self._levels, streams, due)
        self.tally.keys += keys.size
        self.tally.read_ns += time.perf_counter_ns() - began
        return keys

    @property
    def has_elements(self) -> bool:
        """Return whether any state is a list or a map."""
        return any(name in self._form.slots for name in self._levels)

    def element_bytes(self, h: Hashes) -> NDArray[np.float64]:
        """Estimate the bytes of elements of each group for these hashes, which are sorted and unique."""
        sizes = np.zeros(len(h), np.float64)
        for name, levels in self._levels.items():
            if name != ROWS:
                sizes += levels.bytes_of(h)
        of = np.bincount(self.groups_of(h), weights=sizes, minlength=self._layout.key_groups)
        return np.asarray(of, np.float64)

    def groups_of(self, h: Hashes) -> NDArray[np.int64]:
        """Return the group of each hash; ascending hashes give ascending groups."""
        return self._tables.groups_of(h)

    def shared(self, name: str) -> pa.Table:
        """Return the stored rows of a broadcast stream, which are the same in all open groups."""
        levels = self._levels[name]
        has_any = (group for group, opened in self._open.items() if opened.meta is not None or opened.changes)
        group = next(has_any, None)
        names = ["slot", "k", "v"]
        if group is None:
            return pa.Table.from_batches([], pa.schema([levels.schema.field(column) for column in names]))
        low, _ = self._tables.range_of(group)
        run = levels.of_hashes(np.array([low], np.uint64))
        return pa.Table.from_batches([run.take(run.ord == SHARED_ORD).batch.select(names)])

    def share(self, name: str, columns: Mapping[str, pa.Array]) -> None:
        """Add changed rows of a broadcast stream to all open groups; `write` stores them."""
        schema = self._form.tables[name]
        count = len(columns["slot"])
        made = []
        for group in sorted(self._open):
            low, _ = self._tables.range_of(group)
            identity = [pa.array(np.full(count, low, np.uint64))]
            identity.append(pa.array(np.full(count, SHARED_ORD, np.int32)))
            arrays = [*identity, *(columns[column] for column in schema.names[2:])]
            made.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
        self._changes.take_rows(name, concatenated(made), self._moment)

    def keep(self, keys: Keys, outcome: Outcome) -> None:
        """Add the changes of a pass to the open groups; `write` stores them."""
        self.tally.read_ns += keys.read_ns
        began = time.perf_counter_ns()
        with self._naming_operator():
            self._changes.take(keys, outcome, self._moment)
        self.tally.write_ns += time.perf_counter_ns() - began

    def write(self, moment: Moment) -> None:
        """Write the changed open groups to the store, and close all groups."""
        began = time.perf_counter_ns()
        with self._naming_operator():
            self._store.write(self._recorded(self._writer.writes(moment)))
            for levels in self._levels.values():
                levels.settle()
        self._open.clear()
        self.tally.write_ns += time.perf_counter_ns() - began

    def totals(self, groups: Iterable[int], moment: Moment) -> tuple[Totals, int, list[int]]:
        """Return the totals of these groups; call it when no group is open.

        The records of groups that the task has not opened are read from the store.

        Returns:
            The totals, the size of the groups' blobs in bytes, and the groups that have no counts in the
            current schema and are not included in the totals.
        """
        self._moment = moment
        sums, size, uncounted = self._census.none(), 0, []
        for group, meta in self._group_records(groups).items():
            if meta is None:
                continue
            size += meta.base_bytes + meta.log_bytes
            if meta.counts is not None and meta.form == self._form.fingerprint:
                sums += self._census.own(group, meta.counts)
            else:
                uncounted.append(group)
        return totals_of(self._form, sums), size, uncounted

    def has_any(self, groups: Iterable[int], moment: Moment) -> bool:
        """Return whether any of these groups has state."""
        self._moment = moment
        return any(meta is not None for meta in self._group_records(groups).values())

    def due_groups(self, groups: Iterable[int], moment: Moment) -> list[int]:
        """Return the groups with a due processing-time timer."""
        self._moment = moment
        return [
            group
            for group, meta in self._group_records(groups).items()
            if meta is not None and meta.wake_processing <= moment.now_ms
        ]

    def _group_records(self, groups: Iterable[int]) -> dict[int, Meta | None]:
        """Return the records of groups for counts and due timers, from the previous batch if possible."""
        groups = list(groups)
        left = {} if self._copies is None else self._copies.records(self._moment.batch_id)
        for group in groups:
            if group not in self._records and group in left:
                self._records[group] = left[group]
        others = [group for group in groups if group not in self._records]
        self._records.update(zip(others, self._store.metas(others), strict=True))
        return {group: self._records[group] for group in groups}

    def rows(self) -> Run:
        """Return all rows of the table of keys in the open groups."""
        return self._levels[ROWS].between(0, None)

    def fold(self, groups: Iterable[int], moment: Moment) -> None:
        """Write a new base without expired values for these groups, and close all groups."""
        for group in groups:
            self._open[group].fold = True
        self.write(moment)

    def close(self) -> None:
        """Save the working copy for the next task."""
        if self._copies is not None:
            self._copies.save(self._levels, self._tables.versions, self._records, self._moment.batch_id)

    def _recorded(self, writes: Iterable[Write]) -> Iterator[Write]:
        for write in writes:
            self._records[write.group] = write.meta
            yield write

    @contextmanager
    def _naming_operator(self) -> Iterator[None]:
        """Add the operator's name to errors raised by code that does not know it."""
        try:
            yield
        except Unsupported as error:
            error.where = error.where or f"operator {self._layout.operator}"
            raise

    def _counted(self, group: int, meta: Meta | None) -> Counts:
        """Return the counts of a group, from its record or, if the record has none, from its rows."""
        if meta is None:
            return self._census.none()
        if meta.counts is not None and meta.form == self._form.fingerprint:
            return np.array(meta.counts, np.int64)
        return self._census.count(self._tables.runs_of(group))
