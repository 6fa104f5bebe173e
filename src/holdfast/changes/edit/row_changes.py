"""The application of an edit to the rows of one partition.

Spark stores companion data: a list has a counter, and with a TTL its earliest time and an index by that time;
a value with a TTL has an index; a timer is stored twice, by key and by time; each row of a join has a number,
and its key has their count. This module computes all companion data as Spark would write it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from holdfast.changes.edit.editable_state import (
    EXPIRY,
    INDEX,
    KEY,
    VALUE,
    Column,
    EditableState,
    RowKind,
    RowsView,
    StoredRows,
    Values,
    put_into,
    show_row,
)
from holdfast.checkpoints.state.contents import bare_rows
from holdfast.checkpoints.state.rocksdb import Pairs
from holdfast.checkpoints.state.states import StateCodec
from holdfast.errors import Invalid
from holdfast.formats.rows.spark_types import Struct, parse_struct
from holdfast.formats.rows.unsafe_row import RowCodec
from holdfast.json_shapes import NOT_IN_JSON, in_json, json_as
from holdfast.savepoints.store_edits import RowChange

# A function that reads the rows of a partition again, for a second pass.
Rows = Callable[[], Iterable[tuple[StateCodec, Pairs]]]
_SAMPLES: Final = 5
# The columns of a session: the window in its value begins with the time in its key.
_SESSION: Final = "session_window"
_BEGUN: Final = "sessionStartTime"


@dataclass(frozen=True, slots=True)
class EditedRow:
    """A row before and after an edit; None before an insert or after a delete.

    Example:
        plan = hf.plan_edit("savepoints@daily", "aggregate", key="c1", delete=True)
        row: hf.EditedRow = plan.samples[0]
        print(row.before)
        assert row.after is None
    """

    before: Values | None
    after: Values | None


@dataclass(slots=True)
class EditTally:
    """The numbers of rows that an edit reads and changes, with samples.

    Attributes:
        rows: The number of rows before the edit.
        changed: The number of rows with a different value.
        deleted: The number of deleted rows.
        inserted: The number of inserted rows.
        samples: Some of the changed rows.
    """

    rows: int = field(default=0, metadata=json_as("rows_before"))
    changed: int = 0
    deleted: int = 0
    inserted: int = 0
    samples: list[EditedRow] = field(default_factory=list, metadata=NOT_IN_JSON)

    @property
    def touched(self) -> int:
        """The number of rows that the edit changes, deletes or inserts."""
        return self.changed + self.deleted + self.inserted

    @property
    @in_json
    def rows_after(self) -> int:
        """The number of rows after the edit."""
        return self.rows - self.deleted + self.inserted

    def note(self, before: Values | None, after: Values | None) -> None:
        """Count one row, and keep it as a sample if there are few."""
        if after is None:
            self.deleted += 1
        elif before is None:
            self.inserted += 1
        else:
            self.changed += 1
        if len(self.samples) < _SAMPLES:
            self.samples.append(EditedRow(before, after))


class Decider(Protocol):
    """A decider of how rows change."""

    @property
    def columns(self) -> Sequence[Column]:
        """The columns that the decider sets."""

    def decide(
        self, partition: int, first: int, rows: RowsView
    ) -> Iterable[tuple[int, tuple[Any, ...] | None]]:
        """Return the changed rows by index, with the new values of the columns; None deletes a row.

        Args:
            partition: The partition.
            first: The number of rows of the partition before these.
            rows: The rows, by the names of the state's columns.
        """


class PartitionEdit:
    """An edit of one partition of a state.

    Args:
        state: The state.
        partition: The partition.
        decider: The decision for each row.
        tally: The numbers of rows, which the edit updates.
    """

    def __init__(self, state: EditableState, partition: int, decider: Decider, tally: EditTally) -> None:
        self._state = state
        self._partition = partition
        self._decider = decider
        self._tally = tally
        self._seen = 0
        self._key = _codec(state.main, KEY)
        self._value = _codec(state.main, VALUE)
        self._changes: dict[tuple[str, str, bytes], RowChange] = {}

    def run(self, rows: Rows, inserts: Sequence[Values] = ()) -> list[RowChange]:
        """Apply the edit to the partition.

        Args:
            rows: The rows of the partition.
            inserts: New rows, whose keys belong to this partition.

        Returns:
            The rows to write and to delete.

        Raises:
            Invalid: A row would be inserted under an existing key, or a value does not match its column.
        """
        kind = self._state.kind
        if kind in (RowKind.LIST, RowKind.JOIN_BY_TIME):
            self._lists(rows, inserts)
        elif kind is RowKind.JOIN:
            self._joins(rows, inserts)
        else:
            self._singles(rows, inserts)
        return list(self._changes.values())

    # Values, maps and timers: a row each

    def _singles(self, rows: Rows, inserts: Sequence[Values]) -> None:
        coming = {self._key.encode(self._nested(insert, KEY)): insert for insert in inserts}
        if len(coming) != len(inserts):
            raise self._state.existing_key_error(inserts[0])
        for codec, pairs in rows():
            if codec is not self._state.main:
                continue
            keys, values = bare_rows(codec, pairs)
            self._tally.rows += len(pairs)
            for row in keys if coming else ():
                if row in coming:
                    raise self._state.existing_key_error(coming[row])
            seen = StoredRows(self._state.columns, self._key, self._value, keys, values, self._state.label)
            for place, new in self._decided(seen):
                key, value = seen.decoded(place)
                self._single(keys[place], key, value, self._with(value, new))
        for new_row in inserts:
            self._tally.note(None, new_row)
            new_key = self._nested(new_row, KEY)
            self._single(self._key.encode(new_key), new_key, None, self._nested(new_row, VALUE))

    def _single(self, row: bytes, key: Values, old: Values | None, new: Values | None) -> None:
        if new is not None:
            self._agrees(key, new)
        self._put(self._state.main, row, None if new is None else (self._value.encode(new),))
        reverse, expiry = self._state.paired.get("reverse"), self._state.paired.get("expiry")
        if reverse is not None:
            codec = _codec(reverse, KEY)
            names = {name: key[name] for name in codec.type.names}
            self._index(reverse, codec.encode(names), there=new is not None)
        if expiry is not None:
            before = None if old is None else old[EXPIRY]
            after = None if new is None else new[EXPIRY]
            self._move_expiry(expiry, key, before, after)

    def _agrees(self, key: Values, value: Values) -> None:
        """Check that the key repeated in a row's value equals the row's own key."""
        window = value.get(_SESSION)
        begun = key.get(_BEGUN)
        other = isinstance(window, Mapping) and begun is not None and window.get("start") != begun
        for name, column in self._state.repeated().items():
            other = other or self._state.column(name).of(key, value) != column.of(key, value)
        if other:
            raise Invalid(
                "the value of a row does not match its key",
                code="HF-E2066",
                where=self._state.label,
                found=str({**key, **value})[:200],
                expected="the same key in both, and a session window that starts at the key's start time",
                hint="give the same key in the value, or delete the row and insert a new one",
            )

    # Lists: several rows under a key

    def _lists(self, rows: Rows, inserts: Sequence[Values]) -> None:
        touched: dict[bytes, tuple[Values, list[Values]]] = {}
        coming: dict[bytes, list[Values]] = {}
        for insert in inserts:
            coming.setdefault(self._key.encode(self._nested(insert, KEY)), []).append(insert)
        for keys, values in self._main(rows):
            for at, row in enumerate(keys):
                key = self._key.decode(row)
                elements: list[Values] = [self._value.decode(value) for value in values[at]]
                seen = [
                    show_row(self._state.columns, key, element, place)
                    for place, element in enumerate(elements)
                ]
                decided = dict(self._decided(seen))
                if decided or row in coming:
                    left = [
                        self._with(element, decided[place]) if place in decided else element
                        for place, element in enumerate(elements)
                    ]
                    touched[row] = (key, [element for element in left if element is not None])
        for row, new in coming.items():
            noted, before = touched.get(row) or (self._nested(new[0], KEY), [])
            for insert in new:
                self._tally.note(None, insert)
            touched[row] = (noted, [*before, *(self._nested(insert, VALUE) for insert in new)])
        least = self._least(rows) if "least" in self._state.paired else {}
        for row, (noted, kept) in touched.items():
            encoded = tuple(self._value.encode(element) for element in kept)
            self._put(self._state.main, row, encoded or None, is_list=True)
            for role in ("rows", "count"):
                self._counted(role, row, len(kept))
            if "least" in self._state.paired:
                self._move_least(row, noted, least.get(row), kept)

    def _counted(self, role: str, row: bytes, count: int) -> None:
        codec = self._state.paired.get(role)
        if codec is None:
            return
        value = _codec(codec, VALUE)
        self._put(codec, row, (value.encode({value.type.names[0]: count}),) if count else None)

    def _least(self, rows: Rows) -> dict[bytes, int]:
        """Return the recorded earliest time of each list."""
        codec = self._state.paired["least"]
        value = _codec(codec, VALUE)
        found = {}
        for family, pairs in rows():
            if family is codec:
                for key, stored in pairs:
                    row = codec.values.rows(stored, codec.where)[0][0]
                    found[codec.key_row(key)] = value.decode(row)[value.type.names[0]]
        return found

    def _move_least(self, row: bytes, key: Values, before: int | None, left: Sequence[Values]) -> None:
        codec = self._state.paired["least"]
        value = _codec(codec, VALUE)
        after = min((element[EXPIRY] for element in left), default=None)
        self._put(codec, row, None if after is None else (value.encode({value.type.names[0]: after}),))
        if "expiry" in self._state.paired:
            self._move_expiry(self._state.paired["expiry"], key, before, after)

    # Joins: rows with numbers under a key

    def _joins(self, rows: Rows, inserts: Sequence[Values]) -> None:
        again: dict[bytes, Values] = {}
        gone: set[bytes] = set()
        count = self._state.paired["count"]
        count_key = _codec(count, KEY)
        for keys, values in self._main(rows):
            decoded = [
                (self._key.decode(k), self._value.decode(v[0])) for k, v in zip(keys, values, strict=True)
            ]
            seen = [show_row(self._state.columns, key, value, key[INDEX]) for key, value in decoded]
            for place, new in self._decided(seen):
                key, value = decoded[place]
                changed = self._with(value, new)
                if changed is None:
                    gone.add(keys[place])
                    again[self._join_key(count_key, key)] = key
                else:
                    self._put(self._state.main, keys[place], (self._value.encode(changed),))
        coming: dict[bytes, list[Values]] = {}
        for insert in inserts:
            new_key = {**self._nested(insert, KEY), INDEX: 0}
            coming.setdefault(self._join_key(count_key, new_key), []).append(insert)
            again.setdefault(self._join_key(count_key, new_key), new_key)
        if again:
            self._renumber(rows, again, gone, coming)

    def _join_key(self, codec: RowCodec, key: Values) -> bytes:
        return codec.encode({name: key[name] for name in codec.type.names})

    def _renumber(
        self,
        rows: Rows,
        again: Mapping[bytes, Values],
        gone: set[bytes],
        coming: Mapping[bytes, list[Values]],
    ) -> None:
        """Write the rows of some keys numbered without gaps, with the counts of rows."""
        count = self._state.paired["count"]
        count_key = _codec(count, KEY)
        kept: dict[bytes, list[tuple[int, bytes]]] = {join_key: [] for join_key in again}
        before: dict[bytes, int] = dict.fromkeys(again, 0)
        for keys, values in self._main(rows, counted=False):
            for row, value in zip(keys, values, strict=True):
                key = self._key.decode(row)
                join_key = self._join_key(count_key, key)
                if join_key not in kept:
                    continue
                before[join_key] = max(before[join_key], key[INDEX] + 1)
                if row not in gone:
                    written = self._changes.get(self._place(self._state.main, row))
                    new = value[0] if written is None or written.rows is None else written.rows[0]
                    kept[join_key].append((key[INDEX], new))
        for join_key, of in again.items():
            left = [value for _, value in sorted(kept[join_key])]
            for insert in coming.get(join_key, ()):
                self._tally.note(None, insert)
                left.append(self._value.encode(self._nested(insert, VALUE)))
            for index in range(max(before[join_key], len(left))):
                row = self._key.encode({**of, INDEX: index})
                self._put(self._state.main, row, (left[index],) if index < len(left) else None)
            self._counted("count", join_key, len(left))

    # What they share

    def _main(
        self, rows: Rows, *, counted: bool = True
    ) -> Iterator[tuple[list[bytes], list[tuple[bytes, ...]]]]:
        """Yield the keys and values of the family with the users' rows."""
        main = self._state.main
        for codec, pairs in rows():
            if codec is not main:
                continue
            keys = [codec.key_row(key) for key, _ in pairs]
            values = [codec.values.rows(value, codec.where)[0] for _, value in pairs]
            if counted:
                self._tally.rows += sum(map(len, values))
            yield keys, values

    def _decided(self, rows: RowsView) -> Iterator[tuple[int, tuple[Any, ...] | None]]:
        for place, new in self._decider.decide(self._partition, self._seen, rows):
            before = rows[place]
            after = None
            if new is not None:
                after = {**before, **dict(zip((c.name for c in self._decider.columns), new, strict=True))}
                if after == before:
                    continue
            self._tally.note(before, after)
            yield place, new
        self._seen += len(rows)

    def _with(self, value: Values, new: tuple[Any, ...] | None) -> Values | None:
        if new is None:
            return None
        for column, new_value in zip(self._decider.columns, new, strict=True):
            value = put_into(value, column.path, new_value)
        return value

    def _nested(self, row: Values, side: str) -> dict[str, Any]:
        """Return the fields of a new row, nested as in the state."""
        return _nested(self._state, row, side, self._key.type if side == KEY else self._value.type)

    def _move_expiry(self, codec: StateCodec, key: Values, before: int | None, after: int | None) -> None:
        """Move a key to a different time in the expiry index, or remove it from the index."""
        if before == after:
            return
        form = _codec(codec, KEY)
        time, of = form.type.names[0], form.type.names[1]
        if before is not None:
            self._index(codec, form.encode({time: before, of: key}), there=False)
        if after is not None:
            self._index(codec, form.encode({time: after, of: key}), there=True)

    def _index(self, codec: StateCodec, row: bytes, *, there: bool) -> None:
        """Write or delete a row of an index, which has no value."""
        value = _codec(codec, VALUE)
        self._put(codec, row, (value.encode(dict.fromkeys(value.type.names)),) if there else None)

    def _put(
        self, codec: StateCodec, key: bytes, rows: tuple[bytes, ...] | None, *, is_list: bool = False
    ) -> None:
        self._changes[self._place(codec, key)] = RowChange(codec, key, rows, is_list)

    def _place(self, codec: StateCodec, key: bytes) -> tuple[str, str, bytes]:
        return codec.name.store, codec.name.family, key


def key_row(state: EditableState, row: Values) -> bytes:
    """Return the key of a new row as an UnsafeRow; for a join, the key of its first row."""
    codec = _codec(state.main, KEY)
    key = _nested(state, row, KEY, codec.type)
    return codec.encode({**key, INDEX: 0} if state.kind is RowKind.JOIN else key)


def _nested(state: EditableState, row: Values, side: str, type_: Struct) -> dict[str, Any]:
    made: dict[str, Any] = _empty(type_)
    for column in state.columns:
        if column.side == side:
            made = put_into(made, column.path, row.get(column.name))
    return made


def _empty(type_: Struct) -> dict[str, Any]:
    return {
        name: _empty(kind) if isinstance(kind, Struct) and kind.names else None
        for name, kind in zip(type_.names, type_.types, strict=True)
    }


def _codec(codec: StateCodec, side: str) -> RowCodec:
    schema = codec.require_schema()
    text = schema.key_schema if side == KEY else schema.value_schema
    return RowCodec(parse_struct(text, codec.where))
