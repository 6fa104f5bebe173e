"""The writes of a task for its open groups: a change to the log, a new base, or only a record.

Folding gives a group a new base without expired values, and empties its log.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.formats.key_groups import NEVER, Meta
from holdfast.worker.interface import DUE_EVENT, DUE_PROCESSING, VALUE_PREFIX, Moment
from holdfast.worker.state.layout import ROWS, Layout, encode, forms_text
from holdfast.worker.state.store import Write
from holdfast.worker.state.tables import SEGMENT_ROWS, Run, pages
from holdfast.worker.state.upkeep import Census, Cleaner, FoldCandidate, Tally, chosen, valid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from holdfast.worker.state.group_tables import GroupTables, OpenGroup

# The maximum number of rows in a blob of a base.
PAGE_ROWS = SEGMENT_ROWS


class GroupWriter:
    """An encoder of the changes of open groups.

    Args:
        layout: The layout of the operator's state.
        tables: The tables of the partition.
        groups: The open groups.
        cleaner: Removes expired values.
        census: Counts the contents of groups.
        tally: Counts the work of the task.
        token: Returns eight random bytes, unique per write.
    """

    def __init__(
        self,
        layout: Layout,
        tables: GroupTables,
        groups: Mapping[int, OpenGroup],
        cleaner: Cleaner,
        census: Census,
        tally: Tally,
        token: Callable[[], bytes],
    ) -> None:
        self._layout = layout
        self._form = layout.form
        self._tables = tables
        self._groups = groups
        self._clean = cleaner
        self._census = census
        self._tally = tally
        self._token = token

    def writes(self, moment: Moment) -> Iterator[Write]:
        """Yield the writes one at a time, so that the changes of a batch need not fit in memory together."""
        folds = self._chosen_for_folding(moment)
        for group, opened in sorted(self._groups.items()):
            if group in folds:
                writes: Iterable[Write] = [self._folded(group, opened, moment)]
            elif opened.changes:
                writes = [self._appended(group, opened, moment)]
            else:
                writes = self._rewoken(group, opened, moment)
            for write in writes:
                self._tables.versions[group] = write.meta.token
                yield write

    def _appended(self, group: int, opened: OpenGroup, moment: Moment) -> Write:
        blob = encode(self._form, opened.changes)
        before = opened.meta
        base, log, count = (before.base_bytes, before.log_bytes, before.log_count) if before else (0, 0, 0)
        self._tally.change_bytes += len(blob)
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
        known = before is not None and before.form == meta.form and not opened.unnamed
        forms = None if known else self._forms(self._older(group, opened))
        return Write(group, meta, before, append=blob, forms=forms)

    def _older(self, group: int, opened: OpenGroup) -> Mapping[str, Any]:
        """Return the former schemas of a group's blobs; read them if the rows came from the working copy."""
        if opened.meta is not None and not opened.older:
            opened.older = self._tables.loader.older(group)
        return opened.older

    def _rewoken(self, group: int, opened: OpenGroup, moment: Moment) -> Iterator[Write]:
        """Yield the write of a group with unchanged rows whose earliest timer changed or that was not
        counted.
        """
        if opened.meta is None:
            return
        event, processing = self._wakes(group, opened, moment)
        meta = replace(opened.meta, wake_event=event, wake_processing=processing)
        if meta.counts is None and meta.form == self._form.fingerprint:
            meta = replace(meta, counts=tuple(opened.counts.tolist()))
        if meta != opened.meta:
            yield Write(group, meta, opened.meta)

    def _folded(self, group: int, opened: OpenGroup, moment: Moment) -> Write:
        low, high = self._tables.range_of(group)
        parts: dict[str, Run] = {}
        for name, levels in reversed(self._tables.levels.items()):
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
        self._census.appended(group, opened.counts)  # counted from scratch, including its changes
        counts = self._census.count(parts)
        blobs = list(self._pages(parts))
        size = sum(map(len, blobs))
        self._tally.folded_groups += 1
        self._tally.base_bytes += size
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
        before = opened.meta
        known = before is not None and before.form == meta.form and not (before.mixed or opened.unnamed)
        return Write(group, meta, opened.meta, base=blobs, forms=None if known else self._forms({}))

    def _count_cleaned(self, name: str, run: Run, cleaned: pa.RecordBatch) -> None:
        """Count the values that folding a group removes because they have expired."""
        if name != ROWS:
            self._tally.expired[name] += len(run) - cleaned.num_rows
            return
        self._tally.keys_removed += len(run) - cleaned.num_rows
        after = Run(cleaned)
        for column in run.batch.schema.names:
            if column.startswith(VALUE_PREFIX):
                state = column.removeprefix(VALUE_PREFIX)
                self._tally.expired[state] += valid(run.column(column)) - valid(after.column(column))

    def _pages(self, parts: Mapping[str, Run]) -> Iterator[bytes]:
        for name, run in parts.items():
            for page in pages(run, PAGE_ROWS):
                yield encode(self._form, {name: page})

    def _forms(self, older: Mapping[str, Any]) -> bytes:
        """Return the current schema and the former schemas of the group's blobs, as JSON."""
        forms = {**older, self._form.fingerprint.hex(): self._form.as_json()}
        return forms_text(forms, self._layout.operator)

    def _chosen_for_folding(self, moment: Moment) -> set[int]:
        candidates = [
            FoldCandidate(
                group, opened.meta, sum(batch.nbytes for batch in opened.changes.values()), opened.fold
            )
            for group, opened in self._groups.items()
            if opened.meta is not None
        ]
        # Each batch folds one group in turn, so that unused groups are cleaned, too.
        expires = any(state.ttl for state in self._layout.states)
        turn = (moment.batch_id or 0) % self._layout.key_groups if expires else None
        return chosen(candidates, self._form.fingerprint, turn)

    def _wakes(self, group: int, opened: OpenGroup, moment: Moment) -> tuple[int, int]:
        """Return the earliest due time of each clock in a group; read the group if the recorded timer has
        fired.
        """
        rows = opened.changes.get(ROWS)
        wakes = []
        for column, name, clock in clocks_of(moment):
            if column not in self._form.tables[ROWS].names:
                wakes.append(NEVER)
                continue
            known = getattr(opened.meta, name) if opened.meta else NEVER
            if clock is not None and known <= clock:
                run = self._tables.levels[ROWS].between(*self._tables.range_of(group))
                known = _least(run.column(column))
            elif rows is not None:
                known = min(known, _least(rows.column(rows.schema.get_field_index(column))))
            wakes.append(known)
        return wakes[0], wakes[1]


def clocks_of(moment: Moment) -> Iterator[tuple[str, str, int | None]]:
    """Yield for each clock the column of due times, the field in records, and the latest time that is due."""
    yield DUE_EVENT, "wake_event", moment.watermark_ms
    yield DUE_PROCESSING, "wake_processing", moment.now_ms


def _least(column: pa.Array) -> int:
    least = pc.min(column).as_py()
    return NEVER if least is None else int(least)
