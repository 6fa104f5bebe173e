"""The keyed state of one partition during one task.

For each key group the store keeps a log of changes and a base; folding writes a new base and empties the
log. What is in both is at hand as tables (`Levels`), taken from the working copy where it is of the
store's version and read from the store where not.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import Invalid, Unsupported
from holdfast.formats.key_groups import NEVER, Meta
from holdfast.worker.arrays import numbers, of_type, same_cells, whole
from holdfast.worker.interface import DUE_EVENT, DUE_PROCESSING, STAMP_PREFIX, VALUE_PREFIX, Moment, Outcome
from holdfast.worker.state.key_index import Keys, resolve
from holdfast.worker.state.layout import KEY_PREFIX, ROWS, Layout, encode, group_of, range_of
from holdfast.worker.state.loading import Loader
from holdfast.worker.state.store import PartitionStore, Write
from holdfast.worker.state.tables import (
    SEGMENT_BYTES,
    SEGMENT_ROWS,
    Levels,
    Run,
    concatenated,
    empty_run,
    oversized,
    pages,
    sorted_run,
    united,
)
from holdfast.worker.state.upkeep import Census, Cleaner, FoldCandidate, Tally, chosen, totals_of, valid

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdfast.worker.arrays import Hashes
    from holdfast.worker.state.local_copies import Copies
    from holdfast.worker.state.upkeep import Counts, Totals

# Rows of a base come in blobs of at most so many.
PAGE_ROWS = SEGMENT_ROWS
# Rows of a broadcast stream have the first hash of their group's range, and an ordinal that no key has.
SHARED_ORD = -1
# Groups are read from the store so many bytes at a time.
LOAD_BYTES = 24 << 20
# Loaded rows of more bytes are taken in blob by blob: Arrow has no column of more than 2 GiB.
MOST_AT_ONCE = 1 << 30
# How many characters of a key an error shows.
_LONGEST_KEY = 80


@dataclass(slots=True)
class _Group:
    meta: Meta | None
    counts: Counts
    changes: dict[str, pa.RecordBatch] = field(default_factory=dict)
    older: dict[str, Any] = field(default_factory=dict)  # the former forms that its blobs are in
    fold: bool = False  # whether it must get a new base now


class Partition:
    """Opens key groups, finds what a pass touches, keeps what it changed, writes it to the store.

    Args:
        layout: What fixes the operator's state.
        store: Where the truth is.
        token: Makes eight bytes that were never made before.
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
        self._token = token
        self._loader = Loader(layout, store)
        self._clean = Cleaner(layout.states)
        self._copies = copies
        self._census = Census(layout.form, layout.key_groups)
        self.opened: set[int] = set()  # the groups that were opened in this task
        self._records: dict[int, Meta | None] = {}  # the records that were read in it, as they are now
        self._moment = Moment(0, None, None)
        self._open: dict[int, _Group] = {}
        self._versions: dict[int, bytes] = {}
        self._levels: dict[str, Levels] = {}
        if copies is not None:
            self._levels, self._versions = copies.read(self._form.tables)
        if not self._levels:
            self._levels = {name: Levels(schema) for name, schema in self._form.tables.items()}

    def open(self, groups: Sequence[int], moment: Moment) -> None:
        """Have these groups at hand, ascending; each is opened once a task.

        Raises:
            Invalid: The groups were written with another number of groups, or in a form that cannot be
                read as today's.
            Corrupt: What the store gives cannot be read.
        """
        began = time.perf_counter_ns()
        self._moment = moment
        metas = self._store.metas(groups)
        stale = []
        for group, meta in zip(groups, metas, strict=True):
            if meta is not None and meta.key_groups != self._layout.key_groups:
                raise Invalid(
                    "the number of key groups cannot change by itself: keys would not be found again",
                    where=f"operator {self._layout.operator}",
                    found=f"{self._layout.key_groups}, and state written with {meta.key_groups}",
                    expected=f"key_groups={meta.key_groups}",
                    hint="start with the number that the checkpoint has; only a migration changes it",
                )
            self._open[group] = _Group(meta, self._census.none())
            version = self._versions.get(group)
            if meta is None:
                if version is not None:
                    self._forget(group)
            elif version != meta.token:
                stale.append((group, meta))
        with self._naming_operator():
            self._load(stale, moment)
            for group, opened in self._open.items():
                self.opened.add(group)
                self._records[group] = opened.meta
                opened.counts = self._counted(group, opened.meta)
        self.tally.read_ns += time.perf_counter_ns() - began

    def due(self, moment: Moment) -> Run:
        """The rows of keys in open groups with a timer that is due."""
        rows = self._levels[ROWS]
        if DUE_EVENT not in rows.schema.names:
            return empty_run(rows.schema)
        runs = []
        for column, name, at in _clocks(moment):
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
        """The keys of a pass: per stream the hash and the key columns of each event, and the due rows."""
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
        """About how many bytes of elements each group has for these hashes, sorted and without repeats."""
        sizes = np.zeros(len(h), np.float64)
        for name, levels in self._levels.items():
            if name != ROWS:
                sizes += levels.bytes_of(h)
        of = np.bincount(self.groups_of(h), weights=sizes, minlength=self._layout.key_groups)
        return np.asarray(of, np.float64)

    def groups_of(self, h: Hashes) -> NDArray[np.int64]:
        """The groups of hashes; they ascend as the hashes do."""
        return group_of(h, self._layout.key_groups)

    def shared(self, name: str) -> pa.Table:
        """The stored rows of a broadcast stream, as one of the open groups has them: all have the same."""
        levels = self._levels[name]
        has_any = (group for group, opened in self._open.items() if opened.meta is not None or opened.changes)
        group = next(has_any, None)
        names = ["slot", "k", "v"]
        if group is None:
            return pa.Table.from_batches([], pa.schema([levels.schema.field(column) for column in names]))
        low, _ = self._range(group)
        run = levels.of_hashes(np.array([low], np.uint64))
        return pa.Table.from_batches([run.take(run.ord == SHARED_ORD).batch.select(names)])

    def share(self, name: str, columns: Mapping[str, pa.Array]) -> None:
        """Take in changed rows of a broadcast stream, for all open groups; `write` writes them."""
        schema = self._form.tables[name]
        count = len(columns["slot"])
        made = []
        for group in sorted(self._open):
            low, _ = self._range(group)
            identity = [pa.array(np.full(count, low, np.uint64))]
            identity.append(pa.array(np.full(count, SHARED_ORD, np.int32)))
            arrays = [*identity, *(columns[column] for column in schema.names[2:])]
            made.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
        self._take_in(name, concatenated(made))

    def keep(self, keys: Keys, outcome: Outcome) -> None:
        """Take in what a pass changed; it is written by `write`."""
        self.tally.read_ns += keys.read_ns
        began = time.perf_counter_ns()
        for state, h in keys.unstamped.items():
            if self._clean.knows_now(state, self._moment):
                for group in np.unique(self.groups_of(h)).tolist():
                    self._open[group].fold = True  # which gives them the stamp that they were read with
        with self._naming_operator():
            rows = self._changed_rows(keys, outcome.columns)
            if rows is not None:
                self._take_in(ROWS, rows)
            for name, table in outcome.elements.items():
                if table.num_rows:
                    self._take_in(name, self._element_rows(keys, name, table))
        self.tally.write_ns += time.perf_counter_ns() - began

    def write(self, moment: Moment) -> None:
        """Write the open groups that changed to the store, and close all."""
        began = time.perf_counter_ns()
        with self._naming_operator():
            self._store.write(self._writes(moment))
            for levels in self._levels.values():
                levels.settle()
        self._open.clear()
        self.tally.write_ns += time.perf_counter_ns() - began

    def totals(self, groups: Iterable[int], moment: Moment) -> tuple[Totals, int, list[int]]:
        """Return the totals of these groups, once no group is open.

        Of groups that the task has not opened the records are read.

        Returns:
            The totals, the bytes of the groups' blobs, and the groups whose records have no counts of today's
            form, which are missing in the totals.
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
        """Return the groups that have a due timer in processing time."""
        self._moment = moment
        return [
            group
            for group, meta in self._group_records(groups).items()
            if meta is not None and meta.wake_processing <= moment.now_ms
        ]

    def _group_records(self, groups: Iterable[int]) -> dict[int, Meta | None]:
        """The records of groups, to count and wake by: those that the last batch has left are good enough."""
        groups = list(groups)
        left = {} if self._copies is None else self._copies.records(self._moment.batch_id)
        for group in groups:
            if group not in self._records and group in left:
                self._records[group] = left[group]
        others = [group for group in groups if group not in self._records]
        self._records.update(zip(others, self._store.metas(others), strict=True))
        return {group: self._records[group] for group in groups}

    def rows(self) -> Run:
        """All rows of the table of keys that are at hand."""
        return self._levels[ROWS].between(0, None)

    def fold(self, groups: Iterable[int], moment: Moment) -> None:
        """Give these groups a new base without what has expired, and close all."""
        for group in groups:
            self._open[group].fold = True
        self.write(moment)

    def close(self) -> None:
        """Leave the working copy for the next task."""
        if self._copies is not None:
            self._copies.save(self._levels, self._versions, self._records, self._moment.batch_id)

    @contextmanager
    def _naming_operator(self) -> Iterator[None]:
        """Name the operator in an error of rows, which do not know it."""
        try:
            yield
        except Unsupported as error:
            error.where = error.where or f"operator {self._layout.operator}"
            raise

    # What groups are made of

    def _load(self, stale: Sequence[tuple[int, Meta]], moment: Moment) -> None:
        """Read groups from the store, some at a time, each table's rows in one go."""
        cold = not self._versions
        waiting: list[tuple[int, Meta, dict[str, list[pa.RecordBatch]]]] = []
        size = 0
        for group, meta in stale:
            loaded = self._loader.load(group, moment)
            self._check_placement(loaded.batches.get(ROWS, ()))
            self._open[group].older, self._open[group].fold = loaded.older, loaded.timed
            waiting.append((group, meta, loaded.batches))
            size += meta.base_bytes + meta.log_bytes
            if size >= LOAD_BYTES:
                self._adopt(waiting, cold=cold)
                waiting, size = [], 0
        self._adopt(waiting, cold=cold)
        self.tally.loaded_groups += len(stale)

    def _adopt(
        self, loaded: Sequence[tuple[int, Meta, dict[str, list[pa.RecordBatch]]]], *, cold: bool
    ) -> None:
        if not loaded:
            return
        for name, levels in self._levels.items():
            batches = [batch for _, _, found in loaded for batch in found.get(name, ())]
            if not cold:
                for group, _, _ in loaded:
                    levels.drop(*self._range(group))
            if not batches:
                continue
            if sum(batch.nbytes for batch in batches) > MOST_AT_ONCE:
                # Of one group, since groups are adopted some at a time: too much to be put together.
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
            self._versions[group] = meta.token

    def _check_placement(self, batches: Iterable[pa.RecordBatch]) -> None:
        placement = self._layout.placement
        if placement is None:
            return
        names = [name for name in self._form.tables[ROWS].names if name.startswith(KEY_PREFIX)]
        for batch in batches:
            keys = pa.Table.from_batches([batch.select(names)]).rename_columns(list(self._layout.key_names))
            placement.check(keys, numbers(batch.column("h")))

    def _forget(self, group: int) -> None:
        for levels in self._levels.values():
            levels.drop(*self._range(group))
        self._versions.pop(group, None)

    def _counted(self, group: int, meta: Meta | None) -> Counts:
        """The counts of a group as its record has them; where it has none of today's form, by its rows."""
        if meta is None:
            return self._census.none()
        if meta.counts is not None and meta.form == self._form.fingerprint:
            return np.array(meta.counts, np.int64)
        bounds = self._range(group)
        return self._census.count({name: levels.between(*bounds) for name, levels in self._levels.items()})

    # What a pass changed

    def _changed_rows(self, keys: Keys, columns: Mapping[str, pa.Array]) -> pa.RecordBatch | None:
        """The rows of keys of which any column is another now, whole."""
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

        added, removed = self._census.rows_changed(self.groups_of(keys.h[at]), batch, before)
        self.tally.keys_written += len(at)
        self.tally.keys_added += added
        self.tally.keys_removed += removed
        for name in columns:
            if name.startswith(STAMP_PREFIX):
                self._count_expired(name.removeprefix(STAMP_PREFIX), before, made)
        return batch

    def _count_expired(
        self, state: str, before: Callable[[str], pa.Array], made: Mapping[str, pa.Array]
    ) -> None:
        """Count the values of a state that had expired and that are gone or another now."""
        stamp = f"{STAMP_PREFIX}{state}"
        stamps = before(stamp)
        gone = self._clean.gone(state, stamps, self._moment)
        if gone is not None and gone.any():
            gone &= numbers(before(f"{VALUE_PREFIX}{state}").is_valid()) & ~same_cells(stamps, made[stamp])
            self.tally.expired[state] += int(gone.sum())

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
        """Refuse a row that is larger than a segment.

        Args:
            keys: The keys of the pass.
            at: Which key each row belongs to.
            batch: The rows.
            state: The list or map that they are elements of; None for the rows of keys.
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
        what = "the key itself" if largest.startswith(KEY_PREFIX) else f"state {name}"
        raise Unsupported(
            "a value of keyed state is too large",
            where=f"operator {self._layout.operator}, {what}, {key}",
            found=f"{sum(sizes.values()) / (1 << 20):,.1f} MiB",
            expected=f"at most {SEGMENT_BYTES >> 20} MiB for "
            + ("an element" if state else "all values of a key together"),
            hint="keep large values elsewhere and their addresses in the state, or divide them into elements",
        )

    def _take_in(self, name: str, batch: pa.RecordBatch) -> None:
        run = Run(batch)
        groups = self.groups_of(run.h)
        if name != ROWS:
            had, stamps = self._levels[name].held(run)
            self._census.elements_changed(groups, name, batch, had)
            gone = None if stamps is None else self._clean.gone(name, stamps, self._moment)
            if gone is not None:
                self.tally.expired[name] += int((gone & had).sum())
        self._levels[name].put(batch)
        numbers_, starts = np.unique(groups, return_index=True)
        stops = np.append(starts[1:], len(groups))
        self._census.bytes_added(name, batch, numbers_, stops - starts)
        for group, start, stop in zip(numbers_.tolist(), starts.tolist(), stops.tolist(), strict=True):
            self._open[group].changes[name] = batch.slice(start, stop - start)

    # What is written

    def _writes(self, moment: Moment) -> Iterator[Write]:
        """Yield the changes, built as they are sent: a batch may write more than it should hold at once."""
        folds = self._chosen_for_folding(moment)
        for group, opened in sorted(self._open.items()):
            if group in folds:
                writes: Iterable[Write] = [self._folded(group, opened, moment)]
            elif opened.changes:
                writes = [self._appended(group, opened, moment)]
            else:
                writes = self._rewoken(group, opened, moment)
            for write in writes:
                self._versions[group] = write.meta.token
                self._records[group] = write.meta
                yield write

    def _appended(self, group: int, opened: _Group, moment: Moment) -> Write:
        blob = encode(self._form, opened.changes)
        before = opened.meta
        base, log, count = (before.base_bytes, before.log_bytes, before.log_count) if before else (0, 0, 0)
        self.tally.change_bytes += len(blob)
        meta = Meta(
            self._layout.key_groups,
            self._token(),
            self._form.fingerprint,
            base,
            log + len(blob),
            count + 1,
            *self._wakes(group, opened, moment),
            mixed=before is not None and (before.mixed or before.form != self._form.fingerprint),
            counts=tuple(self._census.appended(group, opened.counts).tolist()),
        )
        forms = None if before and before.form == meta.form else self._forms(self._older(group, opened))
        return Write(group, meta, before, append=blob, forms=forms)

    def _older(self, group: int, opened: _Group) -> Mapping[str, Any]:
        """The former forms of a group's blobs, which were not read where the working copy had its rows."""
        if opened.meta is not None and not opened.older:
            opened.older = self._loader.older(group)
        return opened.older

    def _rewoken(self, group: int, opened: _Group, moment: Moment) -> Iterator[Write]:
        """A group whose rows stay, and that wakes at another time or was not counted."""
        if opened.meta is None:
            return
        event, processing = self._wakes(group, opened, moment)
        meta = replace(opened.meta, wake_event=event, wake_processing=processing)
        if meta.counts is None and meta.form == self._form.fingerprint:
            meta = replace(meta, counts=tuple(opened.counts.tolist()))
        if meta != opened.meta:
            yield Write(group, meta, opened.meta)

    def _folded(self, group: int, opened: _Group, moment: Moment) -> Write:
        low, high = self._range(group)
        parts: dict[str, Run] = {}
        for name, levels in reversed(self._levels.items()):
            run = levels.between(low, high)
            if name == ROWS:
                cleaned = self._clean.rows(run.batch, moment, parts)
            else:
                cleaned = self._clean.elements(name, run.batch, moment)
            if cleaned is not run.batch:
                self._count_cleaned(name, run, cleaned)
                run = Run(cleaned)
                levels.drop(low, high)
                levels.put(cleaned)
            parts[name] = run
        self._census.appended(group, opened.counts)  # counted anew, its changes included
        counts = self._census.count(parts)
        blobs = list(self._pages(parts))
        size = sum(map(len, blobs))
        self.tally.folded_groups += 1
        self.tally.base_bytes += size
        meta = Meta(
            self._layout.key_groups,
            self._token(),
            self._form.fingerprint,
            size,
            0,
            0,
            *self._wakes(group, opened, moment),
            counts=tuple(counts.tolist()),
        )
        known = opened.meta is not None and opened.meta.form == meta.form and not opened.meta.mixed
        return Write(group, meta, opened.meta, base=blobs, forms=None if known else self._forms({}))

    def _count_cleaned(self, name: str, run: Run, cleaned: pa.RecordBatch) -> None:
        """Count what folding a group leaves out because its time has run out."""
        if name != ROWS:
            self.tally.expired[name] += len(run) - cleaned.num_rows
            return
        self.tally.keys_removed += len(run) - cleaned.num_rows
        after = Run(cleaned)
        for column in run.batch.schema.names:
            if column.startswith(VALUE_PREFIX):
                state = column.removeprefix(VALUE_PREFIX)
                self.tally.expired[state] += valid(run.column(column)) - valid(after.column(column))

    def _pages(self, parts: Mapping[str, Run]) -> Iterator[bytes]:
        for name, run in parts.items():
            for page in pages(run, PAGE_ROWS):
                yield encode(self._form, {name: page})

    def _forms(self, older: Mapping[str, Any]) -> bytes:
        """Today's form beside those that the group's blobs still have."""
        return json.dumps({**older, self._form.fingerprint.hex(): self._form.as_json()}).encode()

    def _chosen_for_folding(self, moment: Moment) -> set[int]:
        candidates = [
            FoldCandidate(
                group, opened.meta, sum(batch.nbytes for batch in opened.changes.values()), opened.fold
            )
            for group, opened in self._open.items()
            if opened.meta is not None
        ]
        # One group a batch in turn, so that what nobody asks for is cleaned too.
        expires = any(state.ttl for state in self._layout.states)
        turn = (moment.batch_id or 0) % self._layout.key_groups if expires else None
        return chosen(candidates, self._form.fingerprint, turn)

    def _wakes(self, group: int, opened: _Group, moment: Moment) -> tuple[int, int]:
        """The earliest timers of a group: as known, or by reading the group where the known has fired."""
        rows = opened.changes.get(ROWS)
        wakes = []
        for column, name, clock in _clocks(moment):
            if column not in self._form.tables[ROWS].names:
                wakes.append(NEVER)
                continue
            known = getattr(opened.meta, name) if opened.meta else NEVER
            if clock is not None and known <= clock:
                run = self._levels[ROWS].between(*self._range(group))
                known = _least(run.column(column))
            elif rows is not None:
                known = min(known, _least(rows.column(rows.schema.get_field_index(column))))
            wakes.append(known)
        return wakes[0], wakes[1]

    def _range(self, group: int) -> tuple[int, int | None]:
        return range_of(group, self._layout.key_groups)


def _short(cell: pa.Scalar) -> str:
    text = repr(cell.as_py())
    return text if len(text) <= _LONGEST_KEY else f"{text[:_LONGEST_KEY]}…"


def _clocks(moment: Moment) -> Iterator[tuple[str, str, int | None]]:
    """Return for each clock the column of timers, the field of records, and the latest due time."""
    yield DUE_EVENT, "wake_event", moment.watermark_ms
    yield DUE_PROCESSING, "wake_processing", moment.now_ms


def _least(column: pa.Array) -> int:
    least = pc.min(column).as_py()
    return NEVER if least is None else int(least)
