"""Keyed state changed by the keys of its users: key groups with other state for some keys and no others."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from holdfast.at_rest.keyed.changes import GroupChange, KeyChange
from holdfast.at_rest.keyed.group_blobs import alive, brought, filled, joined, living_parts, written
from holdfast.at_rest.keyed.group_tables import owners_of
from holdfast.at_rest.keyed.keyed_operators import BROADCAST, belongs_to_no_key
from holdfast.at_rest.keyed.keyed_reader import KeyedState, key_table_of, placed_hash
from holdfast.at_rest.keyed.row_rewriting import EditedKey, edited_rows
from holdfast.checkpoints.keyed.key_groups import KeyGroup, Part, parts_of
from holdfast.checkpoints.keyed.key_rows import SHARED, KeyRow, key_rows
from holdfast.errors import Internal, Invalid, Unsupported
from holdfast.worker.arrays import comparable, comparable_key
from holdfast.worker.state.blob_schema import KEY_PREFIX, BlobSchema
from holdfast.worker.state.key_group import group_of
from holdfast.worker.state.key_index import KeyOrdinals
from holdfast.worker.state.tables.runs import Run

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Of so large a share of all key groups, all are read at once and not each on its own.
_MANY = 8

_Identity = tuple[int, int]


def changed(state: KeyedState, changes: Iterable[KeyChange]) -> tuple[GroupChange, ...]:
    """Work out which key groups are to be written anew, and how, so that some keys are others.

    Nothing is written. A group that is touched gets a new base without a log: the bytes of what was removed
    or replaced are in no blob of it any more. That all other keys of it are as they were is seen to here.

    Cost: the groups of these keys are read and made anew; where a placement may have put keys elsewhere, and
    some are not in the group of their hash, all are looked at.

    Args:
        state: The operator's state.
        changes: The changes; each key once.

    Raises:
        Invalid: A key, a state or a value does not fit, or a key comes twice.
        NotFound: There is no such state.
        Unsupported: A new key whose place only the program knows, or rows of a former version that only the
            program can bring into today's.
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


def without_shared(state: KeyedState, stream: str, keys: Iterable[Any]) -> tuple[GroupChange, ...]:
    """Work out the key groups without some rows of a broadcast stream, of which each group has a copy.

    Nothing is written. A row that the stream had taken back is removed as well.

    Cost: all state of the operator is read, and each group that has such a row made anew.

    Args:
        state: The operator's state.
        stream: The name of the stream.
        keys: The keys of the rows, in the same shapes as keys of the operator.

    Raises:
        NotFound: There is no such stream.
        Invalid: The state is of keys, or a key does not fit.
        Corrupt: A blob cannot be read.
    """
    kept = state.operator.state(stream)
    if kept.kind != BROADCAST or kept.key_type is None:
        raise Invalid(
            "the state is of keys, and not of a broadcast stream",
            where=state.where,
            found=stream,
            hint="change it by its keys",
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


def refolded(state: KeyedState, group: KeyGroup) -> GroupChange:
    """A key group written anew with what counts of it and nothing else."""
    parts = [alive(part) for part in parts_of(group, state.where, dead=True)]
    form = parts[0].form if parts else state.operator.form
    after = written(group.group, state.operator.key_groups, form, joined(parts))
    return GroupChange(group, after)


class _Work:
    """Finds the keys of changes and writes their groups."""

    def __init__(self, state: KeyedState, wanted: Sequence[KeyChange], keys: pa.Table) -> None:
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
        """Look for each key where its hash puts it."""
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
        """Look for the keys that are left in all groups, where a placement may have put them."""
        for group in self._state.source.groups():
            h = placed_hash(self._h, group.group, self._state.operator.key_groups)
            self._match(group, list(self.left), h)
            if group.group in self._of:
                self._groups[group.group] = group

    def new_ones(self) -> None:
        """Give the keys that are nowhere a place, if they are to be made."""
        added = [at for at in self.left if not self._wanted[at].remove and _makes(self._wanted[at])]
        if not added:
            return
        self._check_places()
        of = group_of(self._h, self._state.operator.key_groups)
        for at in added:
            self._of.setdefault(int(of[at]), []).append((at, None))

    def done(self) -> tuple[GroupChange, ...]:
        """Write the groups."""
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
        """Take the keys out of those that are left that are in a group, by these hashes."""
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
                    "a key comes twice among the changes",
                    where=self._state.where,
                    found=repr(values),
                    hint="put all that changes of a key into one change",
                )
            seen.add(key)

    def _check_places(self) -> None:
        """Refuse to make keys where something else than their hash would say in which group."""
        operator = self._state.operator
        by_hash = not operator.instances and operator.placed is not True
        if by_hash and (operator.placed is False or all(self._by_hash())):
            return
        raise Unsupported(
            "where a new key belongs is known to the program alone",
            where=self._state.where,
            found="its keys are instances" if operator.instances else "a function places its keys",
            hint="change and remove keys that are there; let the query make new ones",
        )

    def _by_hash(self) -> Iterator[bool]:
        """Of each group, whether its keys are where their hashes put them."""
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
        """All rows in the operator's newest form where they fit in, else in the only one that they have."""
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


def _check(state: KeyedState, changes: Iterable[KeyChange]) -> None:
    for change in changes:
        for name in (*change.states, *change.stamps):
            if state.operator.state(name).kind == BROADCAST:
                raise belongs_to_no_key(state.where, name)
        if change.timers and not state.operator.timers:
            raise Invalid(
                "the processor has no timers",
                where=state.where,
                found=repr(change.timers[0]),
                hint="leave the timers of the key as they are",
            )


def _makes(change: KeyChange) -> bool:
    return bool(change.timers) or any(value is not None for value in change.states.values())


def _newest(group: KeyGroup, where: str, form: BlobSchema) -> BlobSchema:
    return group.known(where).get(group.record(where).form, form)


def _ordinals_by_hash(run: Run, count: int) -> dict[int, KeyOrdinals]:
    columns = [run.column(f"{KEY_PREFIX}{at}").to_pylist() for at in range(count)]
    by_hash: dict[int, KeyOrdinals] = {}
    for h, ordinal, *cells in zip(run.h.tolist(), run.ord.tolist(), *columns, strict=True):
        by_hash.setdefault(h, KeyOrdinals()).add(cells, ordinal)
    return by_hash


def _without(part: Part, identities: set[_Identity]) -> Part:
    """The same without the rows of some keys in all tables."""
    if not identities:
        return part
    return Part(part.form, {name: run.take(~_is_of(run, identities)) for name, run in part.tables.items()})


def _is_of(run: Run, identities: set[_Identity]) -> NDArray[np.bool_]:
    """Which rows are of these keys."""
    rows = np.isin(run.h, np.array(sorted({h for h, _ in identities}), np.uint64))
    for at in np.flatnonzero(rows).tolist():
        rows[at] = (int(run.h[at]), int(run.ord[at])) in identities
    return rows


def _check_rest(after: KeyGroup, before: Sequence[Part], identities: set[_Identity], where: str) -> None:
    """See that all other keys are as they were.

    Raises:
        Internal: One is not.
    """
    parts = [_without(part, identities) for part in parts_of(after, where, dead=True)]
    for had, has in zip(filled(joined(before)), filled(parts), strict=True):
        for name in {*had.tables, *has.tables}:
            one, other = had.tables.get(name), has.tables.get(name)
            same = len(one or ()) == len(other or ()) and (
                one is None or other is None or one.batch.equals(other.batch)
            )
            if not same:
                fact = "a key that was to stay as it was has changed"
                hint = "nothing was written; please report this"
                raise Internal(fact, where=where, found=name or "the table of keys", hint=hint)
