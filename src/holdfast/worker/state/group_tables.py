"""The rows of a partition's key groups as tables, in the version that the store has.

A group is read from the working copy if the copy has the store's version, otherwise from the store.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.worker.arrays import numbers
from holdfast.worker.state.layout import KEY_PREFIX, ROWS, Layout, group_of, range_of
from holdfast.worker.state.loading import Loader
from holdfast.worker.state.tables import Levels, Run, concatenated, sorted_run

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from holdfast.formats.key_groups import Meta
    from holdfast.worker.arrays import Hashes
    from holdfast.worker.interface import Moment
    from holdfast.worker.state.local_copies import Copies
    from holdfast.worker.state.store import PartitionStore
    from holdfast.worker.state.upkeep import Counts

# The number of bytes of groups that are read from the store at a time.
LOAD_BYTES = 24 << 20
# Loaded rows of more bytes are added blob by blob: an Arrow column has at most 2 GiB.
MOST_AT_ONCE = 1 << 30


@dataclass(slots=True)
class OpenGroup:
    """A key group that a pass has opened.

    Attributes:
        meta: The group's record in the store, or None for a group without state.
        counts: The counts of the group when it was opened.
        changes: The changed rows by table.
        older: The former schemas of the group's blobs.
        fold: Whether the group must get a new base now.
        unnamed: Whether the group's next write adds the operator's name.
    """

    meta: Meta | None
    counts: Counts
    changes: dict[str, pa.RecordBatch] = field(default_factory=dict)
    older: dict[str, Any] = field(default_factory=dict)
    fold: bool = False
    unnamed: bool = False


class GroupTables:
    """The tables of a partition, with the rows of its groups.

    Args:
        layout: The layout of the operator's state.
        store: The store with the committed state.
        copies: The working copy, or None to read every group from the store.

    Attributes:
        levels: The tables by name.
        versions: The token of each group whose rows are in the tables, by group.
        loader: The reader of groups from the store.
    """

    def __init__(self, layout: Layout, store: PartitionStore, copies: Copies | None) -> None:
        self._layout = layout
        self.loader = Loader(layout, store)
        self.levels: dict[str, Levels] = {}
        self.versions: dict[int, bytes] = {}
        if copies is not None:
            self.levels, self.versions = copies.read(layout.form.tables)
        if not self.levels:
            self.levels = {name: Levels(schema) for name, schema in layout.form.tables.items()}

    def groups_of(self, h: Hashes) -> NDArray[np.int64]:
        """Return the group of each hash; ascending hashes give ascending groups."""
        return group_of(h, self._layout.key_groups)

    def range_of(self, group: int) -> tuple[int, int | None]:
        """Return the first hash of a group, and the first hash after the group."""
        return range_of(group, self._layout.key_groups)

    def runs_of(self, group: int) -> dict[str, Run]:
        """Return the rows of a group by table."""
        bounds = self.range_of(group)
        return {name: levels.between(*bounds) for name, levels in self.levels.items()}

    def load(
        self, stale: Sequence[tuple[int, Meta]], opened: Mapping[int, OpenGroup], moment: Moment
    ) -> None:
        """Read groups from the store, several at a time, and add their rows to the tables.

        Raises:
            Invalid: The rows of a group cannot be converted to the current schema.
            Corrupt: The data of a group in the store cannot be read.
        """
        cold = not self.versions
        waiting: list[tuple[int, Meta, dict[str, list[pa.RecordBatch]]]] = []
        size = 0
        for group, meta in stale:
            loaded = self.loader.load(group, moment)
            self._check_placement(loaded.batches.get(ROWS, ()))
            opened[group].older, opened[group].fold = loaded.older, loaded.timed
            opened[group].unnamed = loaded.unnamed
            waiting.append((group, meta, loaded.batches))
            size += meta.base_bytes + meta.log_bytes
            if size >= LOAD_BYTES:
                self._adopt(waiting, cold=cold)
                waiting, size = [], 0
        self._adopt(waiting, cold=cold)

    def forget(self, group: int) -> None:
        """Remove the rows of a group from the tables."""
        for levels in self.levels.values():
            levels.drop(*self.range_of(group))
        self.versions.pop(group, None)

    def _adopt(
        self, loaded: Sequence[tuple[int, Meta, dict[str, list[pa.RecordBatch]]]], *, cold: bool
    ) -> None:
        if not loaded:
            return
        for name, levels in self.levels.items():
            batches = [batch for _, _, found in loaded for batch in found.get(name, ())]
            if not cold:
                for group, _, _ in loaded:
                    levels.drop(*self.range_of(group))
            if not batches:
                continue
            if sum(batch.nbytes for batch in batches) > MOST_AT_ONCE:
                # Too large for one column. These are rows of one group, because groups are added a few at a
                # time.
                for batch in batches:
                    levels.put(batch)
                levels.settle(sys.maxsize)
                continue
            run = sorted_run(concatenated(batches)).alive()
            if cold:
                levels.extend(run)
            else:
                levels.put(run.batch)
                levels.settle(len(run) + levels.rows)
        for group, meta, _ in loaded:
            self.versions[group] = meta.token

    def _check_placement(self, batches: Iterable[pa.RecordBatch]) -> None:
        placement = self._layout.placement
        if placement is None:
            return
        names = [name for name in self._layout.form.tables[ROWS].names if name.startswith(KEY_PREFIX)]
        for batch in batches:
            keys = pa.Table.from_batches([batch.select(names)]).rename_columns(list(self._layout.key_names))
            placement.check(keys, numbers(batch.column("h")))
