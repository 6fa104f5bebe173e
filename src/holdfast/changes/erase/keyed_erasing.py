"""The search for a key in keyed state, and its erasure.

The rows of a key group are in blobs, in which deleted rows stay until the group is rewritten; older blobs
stay in RocksDB's files. Therefore a group that may contain the key is rewritten even if no current row
contains it, together with the stores of such groups.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from holdfast.at_rest.keyed_operators import BROADCAST, MAP
from holdfast.at_rest.keyed_reader import GroupsInMemory, KeyedStateReader
from holdfast.at_rest.model import NamedOperator
from holdfast.changes.erase.certificate import ErasureFinding
from holdfast.changes.erase.purge import Cleansing, ReplacedFiles
from holdfast.changes.erase.searching import FileHits, StoreHits, Subject, entries
from holdfast.changes.keyed.group_changes import changed, refolded, without_shared
from holdfast.changes.keyed.store_rows import GroupChange, KeyChange, group_rows
from holdfast.checkpoints.keyed import KeyGroup, KeyRow, key_rows, shared_rows
from holdfast.errors import Internal
from holdfast.layout import StoreId
from holdfast.savepoints.store_edits import RowChange
from holdfast.savepoints.view import SavepointView
from holdfast.storage.port import Storage

_NUMBERS: Final = (("<b", 8), ("<h", 16), ("<i", 32), ("<q", 64))
_TEXTS: Final = ("string", "large_string")


@dataclass(frozen=True, slots=True)
class KeyedHits:
    """The occurrences of a subject in a keyed operator; see `OperatorHits`.

    Attributes:
        operator: The operator.
        state: The reader of the operator's state.
        changes: The changes of current keys: the deletion of a key or of entries in its maps.
        shared: The keys of broadcast rows to delete, by stream.
        groups: The key groups that may contain the subject, in current or old rows.
        stores: The stores whose files may contain the subject.
    """

    operator: NamedOperator
    state: KeyedStateReader
    changes: tuple[KeyChange, ...]
    shared: Mapping[str, tuple[Any, ...]]
    groups: frozenset[int]
    stores: tuple[StoreHits, ...] = field(repr=False)

    @property
    def rows(self) -> int:
        """Return the number of current keys and broadcast rows that contain the subject."""
        return len(self.changes) + sum(map(len, self.shared.values()))

    @property
    def certain(self) -> bool:
        """Return whether at least one occurrence is in a current row."""
        return bool(self.rows)

    def findings(self, view: Storage) -> tuple[ErasureFinding, ...]:  # noqa: ARG002 - not needed
        """Return the findings in current rows."""
        return (ErasureFinding(self.operator.name, self.rows),)

    def erased(
        self, work: Cleansing, view: SavepointView
    ) -> tuple[list[ReplacedFiles], tuple[ErasureFinding, ...]]:
        """Rewrite the stores that may contain the subject, and those of its key groups."""
        changes, files = self.row_changes(), self.operator.files
        known = {hits.store for hits in self.stores}
        more = (StoreHits(store, files.chain(view, store), {}) for store in changes if store not in known)
        return [
            work.flat(view, files, hits, changes.get(hits.store, ())) for hits in (*self.stores, *more)
        ], self.findings(view)

    def row_changes(self) -> dict[StoreId, tuple[RowChange, ...]]:
        """Return the row changes in Spark's stores that remove the subject from every key group."""
        before = {group.group: group for group in self.state.source.groups()}
        now = dict(before)

        def state() -> KeyedStateReader:
            return replace(self.state, source=GroupsInMemory(now.values()))

        def take(groups: Sequence[GroupChange]) -> None:
            now.update({group.after.group: group.after for group in groups if group.after is not None})

        if self.changes:
            take(changed(state(), self.changes))
        for stream, keys in self.shared.items():
            take(without_shared(state(), stream, keys))
        for number in self.groups:
            if number in now and now[number] is before.get(number):
                take([refolded(self.state, now[number])])
        made = [
            GroupChange(before.get(number), group)
            for number, group in now.items()
            if group is not before.get(number)
        ]
        return group_rows(self.operator.files, made)


class KeyedSearch:
    """A search for a subject in keyed operators; see `OperatorSearch`. Results are cached by file.

    Args:
        subject: The key.
    """

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._known: dict[str, bool] = {}
        self.columns: set[str] = set()

    def hits(self, view: SavepointView, operator: NamedOperator) -> Iterator[KeyedHits]:
        """Yield the occurrences in an operator that can contain the subject."""
        state = _keyed(operator)
        names = [key.name for key in state.operator.keys]
        self.columns |= {column for column in self._subject.columns if column in names}
        if any(column not in names for column in self._subject.columns):
            return
        needles = self._needles(state)
        stores = [hits for hits in self._stores(view, operator, needles) if hits.any]
        if not stores:
            return
        changes: list[KeyChange] = []
        groups = set()
        shared: dict[str, list[Any]] = {}
        for number, group in enumerate(state.source.groups()):
            if number == 0 and self._subject.any_column:
                shared = self._shared(group, state)
            if _may_hold(group, needles):
                groups.add(group.group)
                for row in key_rows(group, state.where):
                    changes += self._of(row, state)
        yield KeyedHits(
            operator,
            state,
            tuple(changes),
            {stream: tuple(keys) for stream, keys in shared.items()},
            frozenset(groups),
            tuple(stores),
        )

    def unsearched(self, operator: NamedOperator) -> Sequence[str]:
        """Return the states and columns that cannot be searched."""
        return unsearched_keyed(_keyed(operator), self._subject)

    def may_hold(self, operator: NamedOperator) -> Callable[[bytes], bool]:
        """Return a function that returns whether bytes may contain the subject, without false negatives."""
        return partial(_has, self._needles(_keyed(operator)))

    def _stores(
        self, view: SavepointView, operator: NamedOperator, needles: Sequence[Sequence[bytes]] | None
    ) -> Iterator[StoreHits]:
        files = operator.files
        for partition in range(operator.partitions):
            for name in files.store_names:
                store = StoreId(operator.operator_id, partition, name)
                chain = files.chain(view, store)
                files_of = {}
                for file in chain:
                    sha256 = view.sha256(file.render())
                    if sha256 not in self._known:
                        self._known[sha256] = any(
                            _has(needles, value or b"") for _, value in entries(view, files, file)
                        )
                    files_of[file] = FileHits(bare=self._known[sha256])
                yield StoreHits(store, chain, files_of)

    def _needles(self, state: KeyedStateReader) -> list[list[bytes]] | None:
        """Return lists of byte strings, one of each of which occurs in a matching blob; None if unknown."""
        needles = []
        for given in self._subject.values.values():
            made = [str(given).encode()]
            with_text = isinstance(given, str)
            number = _number(given)
            for form, bits in _NUMBERS if number is not None else ():
                if number is not None and -(1 << bits - 1) <= number < 1 << bits - 1:
                    made.append(struct.pack(form, number))
            needles.append(made)
            if (
                with_text
                and number is None
                and not all(str(key.type) in _TEXTS for key in state.operator.keys)
            ):
                return None  # a type, such as a date or decimal, whose encoding is not computed here
        return needles

    def _of(self, row: KeyRow, state: KeyedStateReader) -> Iterator[KeyChange]:
        """Yield the change of a key if it matches: the deletion of the key or of entries in its maps."""
        names = [column.name for column in state.operator.keys]
        key = dict(zip(names, row.key, strict=True))
        values = self._subject.values
        if self._subject.any_column:
            goes = any(_same(part, values[None]) for part in row.key)
        else:
            goes = all(_same(key[column], value) for column, value in values.items() if column is not None)
        if goes:
            yield KeyChange(key, remove=True)
            return
        if not self._subject.any_column:
            return
        states: dict[str, Any] = {}
        for kept in state.operator.states:
            held = row.values.get(kept.name)
            if kept.kind == MAP and held:
                pairs = list(held.items()) if isinstance(held, Mapping) else list(held)
                left = [pair for pair in pairs if not _same(pair[0], values[None])]
                if len(left) < len(pairs):
                    states[kept.name] = left or None
        if states:
            yield KeyChange(key, states)

    def _shared(self, group: KeyGroup, state: KeyedStateReader) -> dict[str, list[Any]]:
        """Return the keys of matching broadcast rows, by stream."""
        by_stream: dict[str, list[Any]] = {}
        for row in shared_rows(group, state.where):
            parts = row.key.values() if isinstance(row.key, Mapping) else [row.key]
            if any(_same(part, self._subject.values[None]) for part in parts):
                by_stream.setdefault(row.state, []).append(row.key)
        return by_stream


def unsearched_keyed(state: KeyedStateReader, subject: Subject) -> list[str]:
    """Return the unsearched parts of a keyed operator: values by name, and keys with several values.

    A bare value is searched in keys, keys of maps and keys of broadcast rows; the value of a named column is
    searched only in key columns.
    """
    states = []
    keys = [(key.name, key.type) for key in state.operator.keys]
    if subject.any_column:
        keys += [(kept.name, kept.key_type) for kept in state.operator.states if kept.key_type is not None]
        return [name for name, type_ in keys if _is_nested(type_) and not _is_broadcast(state, name)]
    wanted = {column.lower() for column in subject.columns}
    for kept in state.operator.states:
        inner = _names_in(kept.type) | (set() if kept.key_type is None else _names_in(kept.key_type))
        if wanted & {kept.name.lower(), *inner}:
            states.append(kept.name)
    return states


def _is_broadcast(state: KeyedStateReader, name: str) -> bool:
    """Return whether the keys of a state are those of broadcast rows, which are decoded."""
    return any(kept.name == name and kept.kind == BROADCAST for kept in state.operator.states)


def _is_nested(type_: Any) -> bool:
    return bool(type_.num_fields)


def _names_in(type_: Any) -> set[str]:
    """Return the names of fields in an Arrow type, at any depth."""
    fields = [type_.field(at) for at in range(type_.num_fields)]
    return {field.name.lower() for field in fields}.union(*(_names_in(field.type) for field in fields))


def _keyed(operator: NamedOperator) -> KeyedStateReader:
    if operator.keyed is None:
        raise Internal(
            "a key cannot be erased from an operator without key groups",
            code="HF-E9007",
            where=operator.name,
            hint="please report this",
        )
    return operator.keyed


def _may_hold(group: KeyGroup, needles: Sequence[Sequence[bytes]] | None) -> bool:
    return any(_has(needles, blob) for blob in (*group.base, *group.log))


def _has(needles: Sequence[Sequence[bytes]] | None, blob: bytes) -> bool:
    """Return whether bytes contain a needle of each list; false positives are possible."""
    return needles is None or all(any(needle in blob for needle in one) for one in needles)


def _number(given: Any) -> int | None:
    try:
        return int(given)
    except (TypeError, ValueError):
        return None


def _same(found: Any, given: Any) -> bool:
    """Return whether a value, or its text, equals the given one."""
    return found is not None and (found == given or str(found) == str(given))
