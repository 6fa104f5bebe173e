"""The changes of a pass, added to the tables of a partition and counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import Unsupported
from holdfast.worker.arrays import numbers, of_type, same_cells, whole
from holdfast.worker.interface import STAMP_PREFIX, VALUE_PREFIX
from holdfast.worker.state.layout import KEY_PREFIX, ROWS, Layout
from holdfast.worker.state.tables import SEGMENT_BYTES, Run, oversized, sorted_run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from holdfast.worker.interface import Moment, Outcome
    from holdfast.worker.state.group_tables import GroupTables, OpenGroup
    from holdfast.worker.state.key_index import Keys
    from holdfast.worker.state.upkeep import Census, Cleaner, Tally

# The maximum number of characters of a key in an error message.
_LONGEST_KEY = 80


class PassChanges:
    """A collector of the changes of passes, which updates the tables, the open groups and the counts.

    Args:
        layout: The layout of the operator's state.
        tables: The tables of the partition.
        groups: The open groups.
        cleaner: Determines which values have expired.
        census: Counts the contents of groups.
        tally: Counts the work of the task.
    """

    def __init__(
        self,
        layout: Layout,
        tables: GroupTables,
        groups: Mapping[int, OpenGroup],
        cleaner: Cleaner,
        census: Census,
        tally: Tally,
    ) -> None:
        self._operator = layout.operator
        self._form = layout.form
        self._tables = tables
        self._groups = groups
        self._clean = cleaner
        self._census = census
        self._tally = tally

    def take(self, keys: Keys, outcome: Outcome, moment: Moment) -> None:
        """Add the outcome of a pass.

        Raises:
            Unsupported: A row is larger than a segment.
        """
        for state, h in keys.unstamped.items():
            if self._clean.knows_now(state, moment):
                for group in np.unique(self._tables.groups_of(h)).tolist():
                    self._groups[group].fold = True  # the base stores the assumed timestamps
        rows = self._changed_rows(keys, outcome.columns, moment)
        if rows is not None:
            self.take_rows(ROWS, rows, moment)
        for name, table in outcome.elements.items():
            if table.num_rows:
                self.take_rows(name, self._element_rows(keys, name, table), moment)

    def take_rows(self, name: str, batch: pa.RecordBatch, moment: Moment) -> None:
        """Add sorted rows of a table."""
        run = Run(batch)
        groups = self._tables.groups_of(run.h)
        if name != ROWS:
            had, stamps = self._tables.levels[name].held(run)
            self._census.elements_changed(groups, name, batch, had)
            gone = None if stamps is None else self._clean.gone(name, stamps, moment)
            if gone is not None:
                self._tally.expired[name] += int((gone & had).sum())
        self._tables.levels[name].put(batch)
        numbers_, starts = np.unique(groups, return_index=True)
        stops = np.append(starts[1:], len(groups))
        self._census.bytes_added(name, batch, numbers_, stops - starts)
        for group, start, stop in zip(numbers_.tolist(), starts.tolist(), stops.tolist(), strict=True):
            self._groups[group].changes[name] = batch.slice(start, stop - start)

    def _changed_rows(
        self, keys: Keys, columns: Mapping[str, pa.Array], moment: Moment
    ) -> pa.RecordBatch | None:
        """Return the complete rows of the keys with a changed column, or None without changes."""
        changed = np.zeros(keys.size, np.bool_)
        for name, column in columns.items():
            changed |= ~same_cells(column, keys.stored(name))
        at = np.flatnonzero(changed)
        if not len(at):
            return None
        chosen = None if len(at) == keys.size else pa.array(at)
        schema = self._form.tables[ROWS]
        made: dict[str, pa.Array] = {}
        for name in schema.names[3:]:
            if name.startswith(KEY_PREFIX):
                column = whole(keys.keys.column(int(name.removeprefix(KEY_PREFIX))))
            else:
                column = columns[name] if name in columns else keys.stored(name)
            made[name] = column if chosen is None else column.take(chosen)
        dead = np.ones(len(at), np.bool_)
        for name in self._form.content:
            dead &= numbers(pc.is_null(made[name]))
        arrays = [pa.array(keys.h[at]), pa.array(keys.ord[at]), pa.array(dead), *made.values()]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        self._refuse_large(keys, at, batch, None)

        def before(name: str) -> pa.Array:
            return keys.stored(name) if chosen is None else keys.stored(name).take(chosen)

        added, removed = self._census.rows_changed(self._tables.groups_of(keys.h[at]), batch, before)
        self._tally.keys_written += len(at)
        self._tally.keys_added += added
        self._tally.keys_removed += removed
        for name in columns:
            if name.startswith(STAMP_PREFIX):
                self._count_expired(name.removeprefix(STAMP_PREFIX), before, made, moment)
        return batch

    def _count_expired(
        self, state: str, before: Callable[[str], pa.Array], made: Mapping[str, pa.Array], moment: Moment
    ) -> None:
        """Count the expired values of a state that were removed or replaced."""
        stamp = f"{STAMP_PREFIX}{state}"
        stamps = before(stamp)
        gone = self._clean.gone(state, stamps, moment)
        if gone is not None and gone.any():
            gone &= numbers(before(f"{VALUE_PREFIX}{state}").is_valid()) & ~same_cells(stamps, made[stamp])
            self._tally.expired[state] += int(gone.sum())

    def _element_rows(self, keys: Keys, name: str, table: pa.Table) -> pa.RecordBatch:
        schema = self._form.tables[name]
        table = table.combine_chunks()
        place = numbers(whole(table.column("position")))
        arrays = [pa.array(keys.h[place]), pa.array(keys.ord[place])]
        arrays += [
            of_type(whole(table.column(column)), schema.field(column).type) for column in schema.names[2:]
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        self._refuse_large(keys, place, batch, name)
        return sorted_run(batch).batch

    def _refuse_large(
        self, keys: Keys, at: NDArray[np.int64], batch: pa.RecordBatch, state: str | None
    ) -> None:
        """Raise an error for a row that is larger than a segment.

        Args:
            keys: The keys of the pass.
            at: The index of each row's key.
            batch: The rows.
            state: The list or map state whose elements the rows are, or None for the rows of keys.
        """
        row = oversized(batch)
        if row is None:
            return
        sizes = {
            name: column.nbytes
            for name, column in zip(batch.schema.names, batch.slice(row, 1).columns, strict=True)
        }
        largest = max(sizes, key=sizes.__getitem__)
        key = ", ".join(
            f"{name}={_short(keys.keys.column(name)[int(at[row])])}" for name in keys.keys.column_names
        )
        name = state or largest.removeprefix(VALUE_PREFIX)
        place = f"operator {self._operator}, " + ("" if largest.startswith(KEY_PREFIX) else f"state {name}, ")
        raise Unsupported(
            "an element of keyed state is too large" if state else "the state of a key is too large",
            code="HF-E7123",
            where=f"{place}key {key}",
            found=f"{sum(sizes.values()) / (1 << 20):,.1f} MiB",
            expected=f"at most {SEGMENT_BYTES >> 20} MiB",
            hint="split the largest value into elements of a list or a map; or write it to a file, and store"
            " the path in the state",
        )


def _short(cell: pa.Scalar) -> str:
    text = repr(cell.as_py())
    return text if len(text) <= _LONGEST_KEY else f"{text[:_LONGEST_KEY]}…"
