"""Changes of keyed state by users' keys, group by group."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.at_rest.keyed_operators import (
    BROADCAST,
    MAP,
    KeptState,
    KeyedOperator,
    belongs_to_no_key,
    kept_states,
)
from holdfast.at_rest.keyed_reader import KeyedStateReader, key_table_of, owners_of, placed_hash
from holdfast.changes.keyed.group_blobs import alive, brought, filled, former, joined, living_parts, written
from holdfast.changes.keyed.store_rows import GroupChange, KeyChange
from holdfast.checkpoints.keyed import SHARED, KeyGroup, KeyRow, KeyTimer, Part, key_rows, parts_of
from holdfast.errors import Internal, Invalid, Unsupported
from holdfast.worker.arrays import comparable, comparable_key, numbers, placed
from holdfast.worker.interface import (
    DUE_EVENT,
    DUE_PROCESSING,
    SLOT_PREFIX,
    STAMP_PREFIX,
    TIMERS,
    VALUE_PREFIX,
)
from holdfast.worker.runtime.columns import Unfit, column_of
from holdfast.worker.runtime.timers import earliest, encode, letter_of, ms_of
from holdfast.worker.runtime.ttl import expired
from holdfast.worker.state.key_index import KeyOrdinals
from holdfast.worker.state.layout import KEY_PREFIX, ROWS, BlobSchema, group_of
from holdfast.worker.state.tables import Run, concatenated, empty_run, sorted_run

if TYPE_CHECKING:
    from numpy.typing import NDArray


_Identity = tuple[int, int]


@dataclass(frozen=True, slots=True)
class EditedKey:
    """A key with changed state.

    Attributes:
        change: The new state of the key, or its deletion.
        key: The values of the key.
        h: The hash of the key, for a new key.
        identity: The hash and ordinal of an existing key.
        before: The state of the key before the change.
    """

    change: KeyChange
    key: tuple[Any, ...]
    h: int
    identity: _Identity | None
    before: KeyRow | None


def edited_rows(
    operator: KeyedOperator, part: Part, keys: Sequence[EditedKey]
) -> tuple[Part, set[_Identity]]:
    """Return the rows of a group with some keys changed, and the identities of these keys.

    Raises:
        Invalid: A value does not match its state.
    """
    return _Group(operator, part, keys).rebuild()


class _Group:
    """The rows of one group with one schema."""

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

    def rebuild(self) -> tuple[Part, set[_Identity]]:
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
        # A key without any state left does not exist, as in a group that a processor has folded.
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
        """Replace the elements of the changed keys, with slots from 0."""
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
        """Return the stamp of a value: the given one, the existing one, or the time of the batch."""
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
                "a value does not fit the type of the state",
                code="HF-E2081",
                where=self._where(state, self._keys[owners[error.at]]),
                found=error.why.found or error.why.fact,
                expected=error.why.expected,
                hint="convert the value; list the types of the states with `holdfast state list CHECKPOINT`",
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
                    "the new value of a map state has a duplicate or null key",
                    code="HF-E2082",
                    where=self._where(state, self._keys[at]),
                    hint="give a dictionary, or pairs with one entry for each key",
                )


def put_timers(
    columns: dict[str, pa.Array], places: NDArray[np.int64], timers: Iterable[Iterable[KeyTimer]]
) -> None:
    """Write the timers of some keys into their rows, as text and as the earliest time of each clock.

    Raises:
        Invalid: A clock or a time is not valid.
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
    """Return the stamp of values written in the batch: its time on the state's clock; None without a TTL."""
    return operator.planned_ms if state.clock == "processing" else operator.watermark_ms or None


def _identities(rows: Run, keys: Sequence[EditedKey]) -> list[_Identity]:
    """Return the hash and ordinal of each key; a new key gets the first free ordinal of its hash."""
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
    """Return the elements of a list or map as pairs; those of a list have None as key."""
    if value is None:
        return []
    if state.kind == MAP:
        pairs: Iterator[Any] = iter(value.items() if isinstance(value, Mapping) else value)
        return [(key, element) for key, element in pairs]
    if isinstance(value, (str, bytes, Mapping)):
        raise Invalid(
            "the new value of a list state is not a list",
            code="HF-E2083",
            where=f"state {state.name}",
            found=repr(value),
            expected="a list",
            hint="give all elements of the list, in order",
        )
    return [(None, element) for element in value]


def _has_expired(operator: KeyedOperator, state: KeptState, stamp: int) -> bool:
    now = default_stamp(operator, state)
    return now is not None and state.ttl_ms is not None and expired(stamp, state.ttl_ms, now)


def _at(stamps: Any, entry: Any) -> Any:
    """Return the stamp of an entry from the stamps of a state; a single value has one stamp."""
    if isinstance(stamps, Mapping):
        try:
            return stamps.get(entry)
        except TypeError:  # an unhashable key
            return None
    if stamps is None or isinstance(stamps, int):
        return stamps
    if isinstance(entry, int) and stamps and not isinstance(stamps[0], tuple):
        return stamps[entry] if entry < len(stamps) else None
    return next((stamp for key, stamp in stamps if key == entry), None) if stamps else None


# From this share of all key groups on, all groups are read at once instead of one by one.
_MANY = 8


def changed(state: KeyedStateReader, changes: Iterable[KeyChange]) -> tuple[GroupChange, ...]:
    """Return the rewritten key groups for changes of some keys.

    Nothing is written. A changed group gets a new base without a log, so that none of its blobs contains the
    bytes of removed or replaced values. All other keys of the group are verified to be unchanged.

    Cost: reads and rewrites the groups of these keys. If keys may be placed by a placement function, and some
    are not in the group of their hash, all groups are searched.

    Args:
        state: The state of the operator.
        changes: The changes, with each key at most once.

    Raises:
        Invalid: A key or a value does not match its columns, or a key is given twice.
        NotFound: The state does not exist.
        Unsupported: Only the program can place a new key, or convert rows of an earlier schema.
        Corrupt: A blob cannot be read.
    """
    wanted = list(changes)
    if not wanted:
        return ()
    _check(state, wanted)
    keys = pa.concat_tables([state.keys_of(change.key) for change in wanted]).combine_chunks()
    work = _Work(state, wanted, keys)
    work.in_their_groups()
    if work.left and state.operator.placed is not False:
        work.elsewhere()
    work.new_ones()
    return work.done()


def without_shared(state: KeyedStateReader, stream: str, keys: Iterable[Any]) -> tuple[GroupChange, ...]:
    """Return the key groups without some rows of a broadcast stream, of which each group has a copy.

    Nothing is written. A row that the stream has retracted is also removed.

    Cost: reads all state of the operator, and rewrites each group with such a row.

    Args:
        state: The state of the operator.
        stream: The name of the stream.
        keys: The keys of the rows, in the same shapes as keys of the operator.

    Raises:
        NotFound: The stream does not exist.
        Invalid: The state is not that of a broadcast stream, or a key does not match its columns.
        Corrupt: A blob cannot be read.
    """
    kept = state.operator.state(stream)
    if kept.kind != BROADCAST or kept.key_type is None:
        raise Invalid(
            f"the operator has no broadcast stream {stream!r}",
            code="HF-E2084",
            where=state.where,
            found=f"a {kept.kind} state of this name",
            hint="change the state by key",
        )
    schema = pa.schema(list(kept.key_type))
    where = f"{state.where}, broadcast stream {stream}"
    wanted = {comparable(key_table_of(key, schema, where).to_pylist()[0]) for key in keys}
    made = []
    for group in state.source.groups():
        parts, gone = [], False
        for part in parts_of(group, where, dead=True):
            run = part.tables.get(stream)
            if run is None:
                parts.append(part)
                continue
            rows = [comparable(key) for key in run.column("k").to_pylist()]
            drop = np.array([row in wanted for row in rows], np.bool_) & (run.ord == SHARED)
            gone |= bool(drop.any())
            parts.append(Part(part.form, {**part.tables, stream: run.take(~drop)}))
        if gone:
            if len(parts) == 1:
                parts = [alive(parts[0])]
            form = _newest(group, where, state.operator.form)
            after = written(group.group, state.operator.key_groups, form, parts)
            made.append(GroupChange(group, after))
    return tuple(made)


def refolded(state: KeyedStateReader, group: KeyGroup) -> GroupChange:
    """Return a key group rewritten with only its current rows."""
    parts = [alive(part) for part in parts_of(group, state.where, dead=True)]
    form = parts[0].form if parts else state.operator.form
    after = written(group.group, state.operator.key_groups, form, joined(parts))
    return GroupChange(group, after)


class _Work:
    """The search for changed keys and the rewriting of their groups."""

    def __init__(self, state: KeyedStateReader, wanted: Sequence[KeyChange], keys: pa.Table) -> None:
        self._state = state
        self._wanted = wanted
        self._keys = keys
        self._h = state.hash_of(keys)
        self._values = list(zip(*(column.to_pylist() for column in keys.columns), strict=True))
        self._of: dict[int, list[tuple[int, _Identity | None]]] = {}
        self._groups: dict[int, KeyGroup | None] = {}
        self.left = dict.fromkeys(range(len(wanted)))
        self._check_twice()

    def in_their_groups(self) -> None:
        """Search each key in the group of its hash."""
        if self._state.operator.instances:
            return
        of = group_of(self._h, self._state.operator.key_groups)
        numbers: dict[int, list[int]] = {}
        for at in self.left:
            numbers.setdefault(int(of[at]), []).append(at)
        for number, group in self._load(sorted(numbers)):
            self._groups[number] = group
            if group is not None:
                self._match(group, numbers[number], self._h)

    def elsewhere(self) -> None:
        """Search the remaining keys in all groups, because a placement function may have placed them."""
        for group in self._state.source.groups():
            h = placed_hash(self._h, group.group, self._state.operator.key_groups)
            self._match(group, list(self.left), h)
            if group.group in self._of:
                self._groups[group.group] = group

    def new_ones(self) -> None:
        """Assign groups to the keys that do not exist yet and must be created."""
        added = [at for at in self.left if not self._wanted[at].remove and _makes(self._wanted[at])]
        if not added:
            return
        self._check_places()
        of = group_of(self._h, self._state.operator.key_groups)
        for at in added:
            self._of.setdefault(int(of[at]), []).append((at, None))

    def done(self) -> tuple[GroupChange, ...]:
        """Return the rewritten groups."""
        made = []
        for number in sorted(self._of):
            group = self._groups.get(number)
            if group is None and number not in self._groups:
                group = self._state.source.group(number)
            made.append(GroupChange(group, self._written(number, group, self._of[number])))
        return tuple(made)

    # Finding

    def _load(self, numbers: Sequence[int]) -> Iterator[tuple[int, KeyGroup | None]]:
        source = self._state.source
        if len(numbers) * _MANY < self._state.operator.key_groups:
            yield from ((number, source.group(number)) for number in numbers)
            return
        there = {group.group: group for group in source.groups()}
        yield from ((number, there.get(number)) for number in numbers)

    def _match(self, group: KeyGroup, places: Sequence[int], h: NDArray[np.uint64]) -> None:
        """Match the remaining keys that are in a group, by their hashes."""
        owners = owners_of(parts_of(group, self._state.where))
        if owners is None:
            return
        wanted = np.unique(h[np.array(places, np.int64)])
        known = _ordinals_by_hash(owners.take(owners.of_hashes(wanted)), len(self._keys.schema))
        for at in places:
            h_of = int(h[at])
            ordinal = known[h_of].find(self._values[at]) if h_of in known else None
            if ordinal is not None:
                self._of.setdefault(group.group, []).append((at, (h_of, ordinal)))
                del self.left[at]

    def _check_twice(self) -> None:
        seen: set[tuple[Hashable, ...]] = set()
        for values in self._values:
            key = comparable_key(values)
            if key in seen:
                raise Invalid(
                    "the changes contain a key more than once",
                    code="HF-E2085",
                    where=self._state.where,
                    found=repr(values),
                    hint="put all changes of a key into one change",
                )
            seen.add(key)

    def _check_places(self) -> None:
        """Check that new keys are placed by hash, so that their group can be computed."""
        operator = self._state.operator
        by_hash = not operator.instances and operator.placed is not True
        if by_hash and (operator.placed is False or all(self._by_hash())):
            return
        raise Unsupported(
            "a new key cannot be inserted, because key groups of this operator are computed only in the job",
            code="HF-E7027",
            where=self._state.where,
            found="an hf.Operator" if operator.instances else "an operator with placement=",
            expected="an operator that assigns keys to key groups by hash",
            hint="change or delete only existing keys, and let the query create new keys",
        )

    def _by_hash(self) -> Iterator[bool]:
        """Yield, for each group, whether its keys are placed by hash."""
        for group in self._state.source.groups():
            owners = owners_of(parts_of(group, self._state.where))
            yield owners is None or self._state.is_by_hash(owners)

    # Writing

    def _written(
        self,
        number: int,
        group: KeyGroup | None,
        members: Sequence[tuple[int, _Identity | None]],
    ) -> KeyGroup:
        state, where = self._state, f"{self._state.where}, key group {number}"
        form = state.operator.form if group is None else _newest(group, where, state.operator.form)
        parts = [] if group is None else living_parts(group, where)
        removals = {identity for at, identity in members if self._wanted[at].remove and identity is not None}
        edits = [(at, identity) for at, identity in members if not self._wanted[at].remove]
        if edits:
            parts = [self._in_one_form(parts, where)]
            form = parts[0].form
        kept = [_without(part, removals) for part in parts]
        if not edits:
            after = written(number, state.operator.key_groups, form, joined(kept))
            _check_rest(after, kept, set(), where)
            return after
        before = {} if group is None else self._before(group, edits)
        made = [
            EditedKey(self._wanted[at], self._values[at], int(self._h[at]), identity, before.get(identity))
            for at, identity in edits
        ]
        part, identities = edited_rows(state.operator, kept[0], made)
        after = written(number, state.operator.key_groups, form, [part])
        _check_rest(after, [_without(kept[0], identities)], identities, where)
        return after

    def _in_one_form(self, parts: Sequence[Part], where: str) -> Part:
        """Convert all rows to the operator's newest schema if possible; otherwise keep their only schema."""
        try:
            return brought(parts, self._state.operator.form, where)
        except Unsupported:
            only = joined(filled(parts))
            if len(only) != 1:
                raise
            return only[0]

    def _before(
        self, group: KeyGroup, edits: Sequence[tuple[int, _Identity | None]]
    ) -> Mapping[_Identity | None, KeyRow]:
        h = np.unique(np.array([identity[0] for _, identity in edits if identity is not None], np.uint64))
        return {(row.h, row.ordinal): row for row in key_rows(group, self._state.where, h)}


def _check(state: KeyedStateReader, changes: Iterable[KeyChange]) -> None:
    for change in changes:
        for name in (*change.states, *change.stamps):
            if state.operator.state(name).kind == BROADCAST:
                raise belongs_to_no_key(state.where, name)
        if change.timers and not state.operator.timers:
            raise Invalid(
                "timers were given, but the processor declares none",
                code="HF-E2076",
                where=state.where,
                found=repr(change.timers[0]),
                hint="remove the timers from the change of this key",
            )


def _makes(change: KeyChange) -> bool:
    return bool(change.timers) or any(value is not None for value in change.states.values())


def _newest(group: KeyGroup, where: str, form: BlobSchema) -> BlobSchema:
    return group.read_forms(where).get(group.record(where).form, form)


def _ordinals_by_hash(run: Run, count: int) -> dict[int, KeyOrdinals]:
    columns = [run.column(f"{KEY_PREFIX}{at}").to_pylist() for at in range(count)]
    by_hash: dict[int, KeyOrdinals] = {}
    for h, ordinal, *cells in zip(run.h.tolist(), run.ord.tolist(), *columns, strict=True):
        by_hash.setdefault(h, KeyOrdinals()).add(cells, ordinal)
    return by_hash


def _without(part: Part, identities: set[_Identity]) -> Part:
    """Return a part without the rows of some keys in all tables."""
    if not identities:
        return part
    return Part(part.form, {name: run.take(~_is_of(run, identities)) for name, run in part.tables.items()})


def _is_of(run: Run, identities: set[_Identity]) -> NDArray[np.bool_]:
    """Return a mask of the rows of some keys."""
    rows = np.isin(run.h, np.array(sorted({h for h, _ in identities}), np.uint64))
    for at in np.flatnonzero(rows).tolist():
        rows[at] = (int(run.h[at]), int(run.ord[at])) in identities
    return rows


def _check_rest(after: KeyGroup, before: Sequence[Part], identities: set[_Identity], where: str) -> None:
    """Check that all other keys are unchanged.

    Raises:
        Internal: A different key has changed.
    """
    parts = [_without(part, identities) for part in parts_of(after, where, dead=True)]
    for had, has in zip(filled(joined(before)), filled(parts), strict=True):
        for name in {*had.tables, *has.tables}:
            one, other = had.tables.get(name), has.tables.get(name)
            same = len(one or ()) == len(other or ()) and (
                one is None or other is None or one.batch.equals(other.batch)
            )
            if not same:
                fact = "verification failed, so nothing was written: a key outside the change was modified"
                hint = "please report this"
                raise Internal(
                    fact, code="HF-E9011", where=where, found=name or "the table of keys", hint=hint
                )
