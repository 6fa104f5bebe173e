"""The reader of key groups from the store, which converts them to the current schema.

States are matched by name. The conversion of a former schema is determined once, and a change that would lose
or misread data is rejected before any row is used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import Corrupt, Invalid
from holdfast.worker.declarations.evolution import TypeChange, change_of
from holdfast.worker.declarations.state_descriptors import State, Ttl, origin_ms
from holdfast.worker.declarations.types import type_text
from holdfast.worker.interface import (
    DUE_EVENT,
    DUE_PROCESSING,
    SLOT_PREFIX,
    STAMP_PREFIX,
    TIMERS,
    VALUE_PREFIX,
    Moment,
)
from holdfast.worker.state.layout import (
    KEY_PREFIX,
    ROWS,
    BlobSchema,
    Layout,
    Period,
    continued,
    decode,
    fingerprint_of,
    form_from_json,
    operator_in,
    stored_types,
)
from holdfast.worker.state.store import PartitionStore
from holdfast.worker.state.upkeep import expired

_DROP_TIMERS = "timers"


@dataclass(frozen=True, slots=True)
class _Source:
    """The state of a former schema from which a current state is read."""

    state: State
    name: str
    change: TypeChange
    ttl: Ttl | None
    mark: str


class Upgrade:
    """A conversion of rows from former schemas to the current schema.

    Args:
        layout: The current layout of the operator's state.
        renamed: The former names of states in earlier versions of the processor, if known.
    """

    def __init__(self, layout: Layout, renamed: Mapping[str, Sequence[str]] | None = None) -> None:
        self._layout = layout
        self._renamed = {old: new for new, names in (renamed or {}).items() for old in names}
        self._sources: dict[bytes, dict[str, _Source]] = {}
        self._periods = continued(layout.periods, layout)
        self._has_gaps = any(self._has_gap(state) for state in layout.states)

    def check(self, form: BlobSchema) -> None:
        """Check, without reading rows, that rows of a former schema can be converted.

        Raises:
            Invalid: The conversion would lose or misread data.
        """
        self._of(form)

    def timed(self, form: BlobSchema) -> bool:
        """Return whether reading sets timestamps or drops values, so that the group must be written."""
        for source in self._of(form).values():
            had, has = source.ttl is not None, source.state.ttl is not None
            if has and (not had or _clock(source.ttl) != _clock(source.state.ttl)):
                return True
            if had and not has and source.ttl is not None and source.ttl.on_disable == "drop_expired":
                return True
        return False

    def bring(
        self, form: BlobSchema, table: str, batch: pa.RecordBatch, moment: Moment
    ) -> tuple[str, pa.RecordBatch] | None:
        """Return the name of the current table and the converted rows, or None if the state is dropped.

        Raises:
            Invalid: The rows cannot be converted to the current schema.
        """
        sources = self._of(form)
        if table == ROWS:
            return ROWS, self._rows(sources, batch, moment)
        for name, source in sources.items():
            if source.name == table:
                return name, self._elements(source, batch, moment)
        return None

    def renew(self, table: str, batch: pa.RecordBatch, moment: Moment) -> pa.RecordBatch:
        """Return rows of the current schema, adjusted if they are older than a TTL that was removed and
        restored.

        Rows that need no adjustment are returned unchanged.
        """
        brought = self.bring(self._layout.form, table, batch, moment) if self._has_gaps else None
        if brought is None:
            return batch
        names = [name for name in batch.schema.names if name == "t" or name.startswith(STAMP_PREFIX)]
        return batch if brought[1].select(names) == batch.select(names) else brought[1]

    def _of(self, form: BlobSchema) -> dict[str, _Source]:
        if form.fingerprint not in self._sources:
            self._check_keys(form)
            self._sources[form.fingerprint] = self._match(form)
        return self._sources[form.fingerprint]

    def _check_keys(self, form: BlobSchema) -> None:
        old, new = (
            [field.type for field in tables[ROWS] if field.name.startswith(KEY_PREFIX)]
            for tables in (form.tables, self._layout.form.tables)
        )
        if old != new:
            raise Invalid(
                "the key type has changed, so existing state cannot be found",
                code="HF-E2518",
                where=f"operator {self._layout.operator}",
                found=", ".join(map(type_text, new)),
                expected=", ".join(map(type_text, old)),
                hint="key the stream by columns of the stored types, or start with a new checkpoint",
            )

    def _match(self, form: BlobSchema) -> dict[str, _Source]:
        sources: dict[str, _Source] = {}
        for state in self._layout.states:
            known = state.stored_as(form.states, self._layout.drop)
            if known is not None:
                sources[state.name] = self._source(form, state, known)
        left = sorted(
            set(form.states) - {source.name for source in sources.values()} - set(self._layout.drop)
        )
        if left:
            fresh = [state.name for state in self._layout.states if state.name not in sources]
            raise Invalid(
                "the checkpoint has state that the processor does not declare",
                code="HF-E2519",
                where=f"operator {self._layout.operator}",
                found=", ".join(left),
                expected=f"a state of this name, or this former name on a new state: {', '.join(fresh)}"
                if fresh
                else None,
                hint=self.way_out(form, left[0]),
            )
        return sources

    def way_out(self, form: BlobSchema, left: str) -> str:
        """Return the code that keeps a stored state that the processor does not declare."""
        drop = f'process(…, drop=["{left}"])'
        for state in self._layout.states:
            other = state.stored_as(form.states, self._layout.drop)
            if left in state.former_names and other is not None:
                return (
                    f'write process(…, drop=["{other}"]) to read {left} as {state.name}, '
                    f"or {drop} to read {other} as {state.name}"
                )
        line = [left]
        heir = self._state_of_name(left)
        while heir is None and self._renamed.get(line[0], left) not in line:
            line.insert(0, self._renamed[line[0]])
            heir = self._state_of_name(line[0])
        if heir is None:
            return f'write was="{left}" on the state that replaces {left}, or delete {left} with {drop}'
        names = [*heir.former_names, *(name for name in line if name not in heir.former_names)]
        names = [f'"{name}"' for name in names if name != heir.name]
        was = names[0] if len(names) == 1 else f"[{', '.join(names)}]"
        return (
            f"write was={was} on {heir.name}: keys not read since the rename still have the state as {left}"
        )

    def _state_of_name(self, name: str) -> State | None:
        return next(
            (state for state in self._layout.states if name in (state.name, *state.former_names)), None
        )

    def _source(self, form: BlobSchema, state: State, name: str) -> _Source:
        declared = form.states[name]
        stored, key = stored_types(form, name)
        change = change_of(state, declared["kind"], stored, key)
        return _Source(state, name, change, _ttl(declared), form.fingerprint.hex())

    def _rows(self, sources: dict[str, _Source], batch: pa.RecordBatch, moment: Moment) -> pa.RecordBatch:
        old = {name: batch.column(at) for at, name in enumerate(batch.schema.names)}
        if TIMERS in old and TIMERS not in self._layout.form.tables[ROWS].names:
            self._check_timers(old[TIMERS])
        made: dict[str, pa.Array] = {}
        for state in self._layout.states:
            source = sources.get(state.name)
            if source is None or not state.of_keys:
                continue
            if state.has_elements:
                made[f"{SLOT_PREFIX}{state.name}"] = old[f"{SLOT_PREFIX}{source.name}"]
                continue
            stamps = old.get(f"{STAMP_PREFIX}{source.name}")
            values = old[f"{VALUE_PREFIX}{source.name}"]
            stamps, gone = self._lived(source, values.is_null(), stamps, moment)
            made[f"{VALUE_PREFIX}{state.name}"] = source.change.apply(_without(values, gone))
            if stamps is not None:
                made[f"{STAMP_PREFIX}{state.name}"] = stamps
        for name in (TIMERS, DUE_EVENT, DUE_PROCESSING):
            if name in old:
                made[name] = old[name]
        return self._conformed(ROWS, {**old, **made}, made, batch.num_rows)

    def _elements(self, source: _Source, batch: pa.RecordBatch, moment: Moment) -> pa.RecordBatch:
        old = {name: batch.column(at) for at, name in enumerate(batch.schema.names)}
        # A null element is an element, and expires like any other.
        stamps, gone = self._lived(source, old["dead"], old.get("t"), moment)
        made = {"v": source.change.apply(_without(old["v"], gone))}
        if gone is not None:
            made["dead"] = pc.or_(old["dead"], gone)
        if stamps is not None:
            made["t"] = stamps
        return self._conformed(source.state.name, {**old, **made}, {**old, **made}, batch.num_rows)

    def _lived(
        self, source: _Source, unset: pa.Array, stamps: pa.Array | None, moment: Moment
    ) -> tuple[pa.Array | None, pa.Array | None]:
        """Return the current timestamps of values, and a mask of values that expired under a former TTL, if
        any.

        Args:
            source: The stored state.
            unset: A mask of missing values.
            stamps: The stored timestamps, or None without a TTL.
            moment: The current time.
        """
        numbers = self._numbers(source.mark)
        made, gone = self._through(source, numbers[-1], unset, stamps, moment)
        if stamps is None or source.ttl is None or source.ttl.clock != "processing":
            return made, gone
        # If a schema was used again, the timestamps show which values are from its earlier period.
        for number, following in reversed([*pairwise(numbers)]):
            since = self._periods[following].since_ms
            if since is None:
                break
            earlier = pc.fill_null(pc.less(stamps, since), False)
            its_made, its_gone = self._through(source, number, unset, stamps, moment)
            if made is not None:
                made = pc.if_else(earlier, its_made, made)
            if its_gone is not None:
                none = pa.array(np.zeros(len(unset), np.bool_))
                gone = pc.if_else(earlier, its_gone, none if gone is None else gone)
        return made, gone

    def _through(
        self, source: _Source, number: int, unset: pa.Array, stamps: pa.Array | None, moment: Moment
    ) -> tuple[pa.Array | None, pa.Array | None]:
        """Return the same as `_lived` for values written in a given period, through all later periods."""
        before, today, gone = source.ttl, source.state.ttl, None
        for period in self._periods[number + 1 :]:
            after = self._ttl_in(period, source.state, before)
            # The time of adding or removing a TTL counts, not the time at which a group is first read
            # afterwards.
            at_ms = self._layout.started_ms if period.since_ms is None else period.since_ms
            if before is not None and after is None:
                if before.on_disable == "drop_expired" and stamps is not None:
                    then = replace(moment, now_ms=min(moment.now_ms, at_ms))
                    lost = pa.array(expired(stamps, before, then))
                    gone = lost if gone is None else pc.or_(gone, lost)
                stamps = None
            elif after is not None and (stamps is None or _clock(before) != after.clock):
                now = at_ms if after.clock == "processing" else moment.event_time_ms
                since = origin_ms("restore" if today is None else today.age_from, now)
                nothing = pa.scalar(None, pa.int64())
                stamps = pc.if_else(unset, nothing, pa.scalar(since, pa.int64()))
            before = after
        if stamps is not None and gone is not None:
            stamps = pc.if_else(gone, pa.scalar(None, pa.int64()), stamps)
        return stamps, gone

    def _numbers(self, mark: str) -> list[int]:
        """Return the numbers of the periods with a schema; -1 for an unrecorded one before all others."""
        return [at for at, period in enumerate(self._periods) if period.mark == mark] or [-1]

    def _ttl_in(self, period: Period, state: State, before: Ttl | None) -> Ttl | None:
        """Return the TTL of a state in a period, or `before` if the period has no such state."""
        if period is self._periods[-1]:
            return state.ttl
        name = state.stored_as(period.states, self._layout.drop)
        return before if name is None else _ttl(period.states[name])

    def _has_gap(self, state: State) -> bool:
        """Return whether values may have timestamps from before their TTL was removed and restored."""
        first = self._numbers(self._layout.form.fingerprint.hex())[0]
        between = [self._ttl_in(period, state, state.ttl) for period in self._periods[first:]]
        return _clock(state.ttl) == "processing" and any(_clock(ttl) != "processing" for ttl in between)

    def _check_timers(self, timers: pa.Array) -> None:
        if timers.null_count < len(timers) and _DROP_TIMERS not in self._layout.drop:
            raise Invalid(
                "the checkpoint has timers, but the processor has no handler for them",
                code="HF-E2520",
                where=f"operator {self._layout.operator}",
                hint=f'define on_timer, or delete the timers with process(…, drop=["{_DROP_TIMERS}"])',
            )

    def _conformed(
        self, table: str, columns: dict[str, Any], made: dict[str, Any], count: int
    ) -> pa.RecordBatch:
        schema = self._layout.form.tables[table]
        prefixes = (VALUE_PREFIX, STAMP_PREFIX, SLOT_PREFIX)
        arrays = []
        for wanted in schema:
            column = made.get(wanted.name) if wanted.name.startswith(prefixes) else columns.get(wanted.name)
            arrays.append(pa.nulls(count, wanted.type) if column is None else column)
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _without(values: pa.Array, gone: pa.Array | None) -> pa.Array:
    return values if gone is None else pc.if_else(gone, pa.scalar(None, values.type), values)


def _ttl(declared: Any) -> Ttl | None:
    if "ttl_ms" not in declared:
        return None
    return Ttl(declared["ttl_ms"], clock=declared["clock"], on_disable=declared["on_disable"])


def _clock(ttl: Ttl | None) -> str | None:
    return None if ttl is None else ttl.clock


@dataclass(slots=True)
class Loaded:
    """The content of a group's blobs.

    Attributes:
        batches: The rows of each table, in the order in which they were written.
        older: The former schemas of the group's blobs.
        timed: Whether reading the group later would give different values, so that it must be written now.
        unnamed: Whether the name of the operator is not stored with the group's schemas.
    """

    batches: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    older: dict[str, Any] = field(default_factory=dict)
    timed: bool = False
    unnamed: bool = False


class Loader:
    """A reader of the groups of one operator.

    Args:
        layout: The layout of the operator's state.
        store: The store with the groups.
    """

    def __init__(self, layout: Layout, store: PartitionStore) -> None:
        self._operator = layout.operator
        self._compared = layout.compared
        self._form = layout.form
        self._store = store
        self._upgrade = Upgrade(layout)

    def load(self, group: int, moment: Moment) -> Loaded:
        """Return all rows of a group, converted to the current schema.

        Raises:
            Corrupt: A blob cannot be decoded.
            Invalid: The group belongs to a different operator, or rows of a former schema cannot be
                converted.
        """
        stored = self._store.load(group)
        owner = operator_in(stored.forms)
        if owner not in (None, self._operator) and not self._compared:
            raise self._other_operator(str(owner))
        today = self._form.fingerprint
        forms: dict[bytes, BlobSchema] = {today: self._form}
        loaded = Loaded(unnamed=owner != self._operator)
        for blob in (*stored.base, *stored.log):
            mark = fingerprint_of(blob)
            if mark not in forms:
                loaded.older = json.loads(stored.forms or b"{}")
                forms |= self._older_forms(loaded.older, mark)
                loaded.timed |= self._upgrade.timed(forms[mark])
            for name, batch in decode(forms[mark], blob).items():
                brought: tuple[str, pa.RecordBatch] | None
                if mark == today:
                    brought = (name, self._upgrade.renew(name, batch, moment))
                    loaded.timed |= brought[1] is not batch
                else:
                    brought = self._upgrade.bring(forms[mark], name, batch, moment)
                if brought is not None:
                    loaded.batches.setdefault(brought[0], []).append(brought[1])
        return loaded

    def _other_operator(self, owner: str) -> Invalid:
        """Return the error for state of a different operator, which Spark finds by its position."""
        return Invalid(
            f"operator {self._operator!r} got the state of operator {owner!r}, so nothing was committed",
            code="HF-E2531",
            where=f"operator {self._operator}",
            found=f"state of operator {owner}, which was at this position of the query",
            expected=f"state of operator {self._operator}",
            hint="restore the order and the names of the operators, or move the state to the new order with"
            " `holdfast state migrate CHECKPOINT NEW --code FILE.py`; to rename an operator, start the query"
            " with hf.adopt(writer).start(…) before and after the change",
        )

    def older(self, group: int) -> dict[str, Any]:
        """Return the schemas stored with a group, as plain values by fingerprint."""
        known: dict[str, Any] = json.loads(self._store.load(group).forms or b"{}")
        return known

    def _older_forms(self, known: Mapping[str, Any], mark: bytes) -> dict[bytes, BlobSchema]:
        if mark.hex() not in known:
            raise Corrupt(
                "the schema of stored keyed state is missing from the key group",
                code="HF-E6060",
                where=f"operator {self._operator}",
                found=mark.hex(),
                expected=", ".join(known) or self._form.fingerprint.hex(),
                hint="restore a savepoint, or an undamaged batch, as listed by"
                " `holdfast checkpoint verify CHECKPOINT`",
            )
        return {bytes.fromhex(text): form_from_json(fields) for text, fields in known.items()}
