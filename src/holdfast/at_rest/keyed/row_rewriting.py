"""The rows of changed keys, as a processor would have written them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.at_rest.keyed.group_blobs import former
from holdfast.at_rest.keyed.keyed_operators import MAP, KeptState, KeyedOperator, kept_states
from holdfast.checkpoints.keyed.key_groups import Part
from holdfast.checkpoints.keyed.key_rows import KeyRow, KeyTimer
from holdfast.errors import Invalid
from holdfast.worker.arrays import numbers, placed
from holdfast.worker.interface import (
    DUE_EVENT,
    DUE_PROCESSING,
    SLOT_PREFIX,
    STAMP_PREFIX,
    TIMERS,
    VALUE_PREFIX,
)
from holdfast.worker.runtime.arrow_columns import Unfit, column_of
from holdfast.worker.runtime.timers import earliest, encode, letter_of, ms_of
from holdfast.worker.runtime.ttl import expired
from holdfast.worker.state.blob_schema import KEY_PREFIX, ROWS, BlobSchema
from holdfast.worker.state.tables.runs import Run, concatenated, empty_run, sorted_run

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdfast.at_rest.keyed.changes import KeyChange

_Identity = tuple[int, int]


@dataclass(frozen=True, slots=True)
class EditedKey:
    """A key that is to have other state.

    Attributes:
        change: Its new state, or that it goes.
        key: Its values.
        h: The hash of one that is new.
        identity: Hash and ordinal of one that is there.
        before: What it had.
    """

    change: KeyChange
    key: tuple[Any, ...]
    h: int
    identity: _Identity | None
    before: KeyRow | None


def edited_rows(
    operator: KeyedOperator, part: Part, keys: Sequence[EditedKey]
) -> tuple[Part, set[_Identity]]:
    """The rows of a group with some keys changed, and the identities of these keys.

    Raises:
        Invalid: A value does not fit its state.
    """
    return _Group(operator, part, keys).made()


class _Group:
    """One group's rows, of one form."""

    def __init__(self, operator: KeyedOperator, part: Part, keys: Sequence[EditedKey]) -> None:
        self._operator = operator
        self._form: BlobSchema = part.form
        self._tables = {
            name: part.tables.get(name) or empty_run(schema) for name, schema in part.form.tables.items()
        }
        identities = _identities(self._tables[ROWS], keys)
        order = sorted(range(len(keys)), key=lambda at: identities[at])
        self._keys = [keys[at] for at in order]
        self._identities = [identities[at] for at in order]
        self._columns: dict[str, pa.Array] = {}

    def made(self) -> tuple[Part, set[_Identity]]:
        h = np.array([identity[0] for identity in self._identities], np.uint64)
        ordinals = np.array([identity[1] for identity in self._identities], np.int32)
        rows = self._tables[ROWS]
        places = rows.find(h, ordinals)
        order = pa.array(places, mask=places < 0)
        schema = self._form.tables[ROWS]
        self._columns = {name: rows.column(name).take(order) for name in schema.names}
        self._columns["h"], self._columns["ord"] = pa.array(h), pa.array(ordinals)
        keys = zip(*(key.key for key in self._keys), strict=True)
        for at, (column, kind) in enumerate(zip(keys, self._operator.keys.types, strict=True)):
            self._columns[f"{KEY_PREFIX}{at}"] = column_of(column, kind)
        states = {kept.name: kept for kept in kept_states(self._form)}
        for name in {name: None for key in self._keys for name in key.change.states}:
            if name not in states:
                raise former(f"operator {self._operator.name}", name)
            state = states[name]
            if state.has_elements:
                self._set_elements(state)
            else:
                self._set_values(state)
        self._set_timers()
        return self._together()

    def _together(self) -> tuple[Part, set[_Identity]]:
        empty = np.ones(len(self._keys), np.bool_)
        for name in self._form.content:
            empty &= numbers(pc.is_null(self._columns[name]))
        self._columns["dead"] = pa.array(empty)
        schema = self._form.tables[ROWS]
        made = pa.RecordBatch.from_arrays([self._columns[column] for column in schema.names], schema=schema)
        # A key that has nothing left is none: as a processor's group is without it once it is folded.
        self._tables[ROWS] = sorted_run(concatenated([self._tables[ROWS].batch, made])).alive()
        gone = {
            identity for identity, nothing in zip(self._identities, empty.tolist(), strict=True) if nothing
        }
        for name, run in self._tables.items():
            if name != ROWS and gone:
                self._tables[name] = _drop(run, gone)
        return Part(self._form, self._tables), set(self._identities)

    def _set_values(self, state: KeptState) -> None:
        chosen = [at for at, key in enumerate(self._keys) if state.name in key.change.states]
        values = [self._keys[at].change.states[state.name] for at in chosen]
        places = np.array(chosen, np.int64)
        column = f"{VALUE_PREFIX}{state.name}"
        made = self._column(values, state.type, state, chosen)
        self._columns[column] = placed(self._columns[column], places, made)
        if state.ttl_ms is not None:
            stamps = [
                None if value is None else self._stamp(state, self._keys[at], None)
                for at, value in zip(chosen, values, strict=True)
            ]
            name = f"{STAMP_PREFIX}{state.name}"
            self._columns[name] = placed(self._columns[name], places, pa.array(stamps, pa.int64()))

    def _set_elements(self, state: KeptState) -> None:
        """Put the elements of the keys that have others in place of theirs, from slot 0 on."""
        chosen = [at for at, key in enumerate(self._keys) if state.name in key.change.states]
        elements = [_entries(state, self._keys[at].change.states[state.name]) for at in chosen]
        counts = [len(element) for element in elements]
        owners = [at for at, count in zip(chosen, counts, strict=True) for _ in range(count)]
        slots = [slot for count in counts for slot in range(count)]
        columns: dict[str, pa.Array] = {
            "h": pa.array([self._identities[at][0] for at in owners], pa.uint64()),
            "ord": pa.array([self._identities[at][1] for at in owners], pa.int32()),
            "slot": pa.array(slots, pa.int64()),
            "dead": pa.array([False] * len(owners), pa.bool_()),
        }
        flat = [pair for element in elements for pair in element]
        if state.key_type is not None:
            columns["k"] = self._column([key for key, _ in flat], state.key_type, state, owners)
            self._check_entries(state, chosen, elements)
        columns["v"] = self._column([value for _, value in flat], state.type, state, owners)
        if state.ttl_ms is not None:
            entries = zip(owners, slots, flat, strict=True)
            stamps = [
                self._stamp(state, self._keys[at], slot if state.key_type is None else pair[0])
                for at, slot, pair in entries
            ]
            columns["t"] = pa.array(stamps, pa.int64())
        schema = self._form.tables[state.name]
        made = pa.RecordBatch.from_arrays([columns[column] for column in schema.names], schema=schema)
        old = _drop(self._tables[state.name], {self._identities[at] for at in chosen})
        self._tables[state.name] = sorted_run(concatenated([old.batch, made]))
        following = pa.array([count or None for count in counts], pa.int64())
        name = f"{SLOT_PREFIX}{state.name}"
        self._columns[name] = placed(self._columns[name], np.array(chosen, np.int64), following)

    def _set_timers(self) -> None:
        chosen = [at for at, key in enumerate(self._keys) if key.change.timers is not None]
        if not chosen or TIMERS not in self._columns:
            return
        timers = [self._keys[at].change.timers or () for at in chosen]
        put_timers(self._columns, np.array(chosen, np.int64), timers)

    def _stamp(self, state: KeptState, key: EditedKey, entry: Any) -> int | None:
        """The stamp of a value: as given, as it was, or of the batch; of a list by place, of a map by key."""
        given = _at(key.change.stamps.get(state.name), entry)
        if given is not None:
            return int(given)
        before = None if key.before is None else _at(key.before.stamps.get(state.name), entry)
        if before is not None and not _has_expired(self._operator, state, before):
            return int(before)
        return default_stamp(self._operator, state)

    def _column(self, values: Sequence[Any], kind: Any, state: KeptState, owners: Sequence[int]) -> pa.Array:
        try:
            return column_of(values, kind)
        except Unfit as error:
            raise Invalid(
                "a value does not fit its state",
                where=self._where(state, self._keys[owners[error.at]]),
                found=error.why.found or error.why.fact,
                expected=error.why.expected,
                hint="give a value of the state's type; `holdfast state list` shows it",
            ) from error

    def _where(self, state: KeptState, key: EditedKey) -> str:
        return f"operator {self._operator.name}, state {state.name}, key {', '.join(map(repr, key.key))}"

    def _check_entries(
        self, state: KeptState, chosen: Sequence[int], elements: Sequence[Sequence[tuple[Any, Any]]]
    ) -> None:
        for at, entries in zip(chosen, elements, strict=True):
            marks = [repr(key) for key, _ in entries]
            if len(set(marks)) < len(marks) or any(key is None for key, _ in entries):
                raise Invalid(
                    "a map has each key once, and none that is null",
                    where=self._where(state, self._keys[at]),
                    hint="give a dictionary, or pairs with one entry for each key",
                )


def put_timers(
    columns: dict[str, pa.Array], places: NDArray[np.int64], timers: Iterable[Iterable[KeyTimer]]
) -> None:
    """Put the timers of some keys at their places: as text, and when the first of each clock is due.

    Raises:
        Invalid: A clock or a time is none.
    """
    made = [{letter_of(timer.clock) + timer.name: ms_of(timer.at_ms) for timer in key} for key in timers]
    firsts = [earliest(times) if times else (None, None) for times in made]
    for name, values in (
        (TIMERS, pa.array([encode(times) for times in made], pa.string())),
        (DUE_EVENT, pa.array([event for event, _ in firsts], pa.int64())),
        (DUE_PROCESSING, pa.array([processing for _, processing in firsts], pa.int64())),
    ):
        columns[name] = placed(columns[name], places, values)


def default_stamp(operator: KeyedOperator, state: KeptState) -> int | None:
    """The stamp of what is written with the batch: its time by the clock of the state, if that has one."""
    return operator.planned_ms if state.clock == "processing" else operator.watermark_ms or None


def _identities(rows: Run, keys: Sequence[EditedKey]) -> list[_Identity]:
    """Hash and ordinal of each key: a new one has the first ordinal of its hash that no other has."""
    new = np.unique(np.array([key.h for key in keys if key.identity is None], np.uint64))
    taken: dict[int, set[int]] = {}
    free: dict[int, Iterator[int]] = {}
    for at in rows.of_hashes(new).tolist():
        taken.setdefault(int(rows.h[at]), set()).add(int(rows.ord[at]))
    identities = []
    for key in keys:
        identity = key.identity
        if identity is None:
            ordinals = taken.setdefault(key.h, set())
            numbers_left = free.setdefault(key.h, count())
            identity = (key.h, next(at for at in numbers_left if at not in ordinals))
        identities.append(identity)
    return identities


def _drop(run: Run, identities: set[_Identity]) -> Run:
    keep = np.ones(len(run), np.bool_)
    for at in run.of_hashes(np.unique(np.array([h for h, _ in identities], np.uint64))).tolist():
        keep[at] = (int(run.h[at]), int(run.ord[at])) not in identities
    return run.take(keep)


def _entries(state: KeptState, value: Any) -> list[tuple[Any, Any]]:
    """The elements of a list or map as pairs; the first of a list's is None."""
    if value is None:
        return []
    if state.kind == MAP:
        pairs: Iterator[Any] = iter(value.items() if isinstance(value, Mapping) else value)
        return [(key, element) for key, element in pairs]
    if isinstance(value, (str, bytes, Mapping)):
        raise Invalid(
            "a list state takes a list",
            where=f"state {state.name}",
            found=repr(value),
            hint="give the whole list, in its order",
        )
    return [(None, element) for element in value]


def _has_expired(operator: KeyedOperator, state: KeptState, stamp: int) -> bool:
    now = default_stamp(operator, state)
    return now is not None and state.ttl_ms is not None and expired(stamp, state.ttl_ms, now)


def _at(stamps: Any, entry: Any) -> Any:
    """The stamp of an entry among those of a state; of a plain value there is one."""
    if isinstance(stamps, Mapping):
        try:
            return stamps.get(entry)
        except TypeError:  # a key without a hash
            return None
    if stamps is None or isinstance(stamps, int):
        return stamps
    if isinstance(entry, int) and stamps and not isinstance(stamps[0], tuple):
        return stamps[entry] if entry < len(stamps) else None
    return next((stamp for key, stamp in stamps if key == entry), None) if stamps else None
