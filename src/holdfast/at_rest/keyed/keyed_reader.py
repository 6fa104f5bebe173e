"""Keyed state read by the keys of its users: one key, all of them, or columns of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from holdfast.at_rest.keyed.group_tables import (
    GroupSource,
    Stored,
    cell_bytes,
    key_table,
    owners_of,
    state_rows,
)
from holdfast.at_rest.keyed.keyed_operators import (
    BROADCAST,
    MAP,
    KeptState,
    KeyedOperator,
    belongs_to_no_key,
    keyed_with_states,
)
from holdfast.checkpoints.keyed.key_groups import KeyGroup, parts_of
from holdfast.checkpoints.keyed.key_rows import KeyRow, key_rows
from holdfast.errors import Invalid
from holdfast.formats.rows.xxhash64 import key_hashes
from holdfast.storage.port import Storage
from holdfast.worker.arrays import comparable_key
from holdfast.worker.declarations.types import type_text
from holdfast.worker.runtime.arrow_columns import Unfit, column_of
from holdfast.worker.state.key_group import group_of, range_of

if TYPE_CHECKING:
    from holdfast.worker.arrays import Hashes
    from holdfast.worker.state.tables.runs import Run

# Beside the key columns.
VALUE: Final = "value"
MAP_KEY: Final = "map_key"
STAMP: Final = "stamp_ms"
SIZE: Final = "size_bytes"
TIMER_SCHEMA: Final = (
    pa.field("name", pa.string()),
    pa.field("clock", pa.string()),
    pa.field("at_ms", pa.int64()),
)
_RESERVED: Final = frozenset({VALUE, MAP_KEY, STAMP, SIZE})


@dataclass(frozen=True, slots=True)
class KeyedState:
    """The state of one keyed operator.

    Attributes:
        operator: What it keeps.
        source: Where its key groups are.
        hashes: What finds keys: Spark's hash.
    """

    operator: KeyedOperator
    source: GroupSource
    hashes: Callable[[pa.Table], Hashes] = field(default=key_hashes, compare=False, repr=False)

    @property
    def where(self) -> str:
        """The operator, for messages."""
        return f"operator {self.operator.name}"

    def keys_of(self, key: Any) -> pa.Table:
        """A key as a table of one row; given by column, in their order, or as the value of the only one.

        Raises:
            Invalid: It has other columns, or a value of another type.
        """
        return key_table_of(key, self.operator.keys, self.where)

    def group_of(self, key: Any) -> int:
        """The key group that the hash of a key gives it; a placement may have put it elsewhere."""
        return int(group_of(self.hash_of(self.keys_of(key)), self.operator.key_groups)[0])

    def get(self, key: Any) -> KeyRow | None:
        """All state of one key; None where it has none. What has expired and was not cleaned up is there.

        Cost: one key group is looked up and decoded. Where a function of the user's places keys, or nobody
        noted whether one does, a key that is not in the group of its hash is looked for in all of them.

        Raises:
            Invalid: The key has other columns, or a value of another type.
            NotFound: A file that the batch needs is gone.
            Corrupt: A file or a row is damaged.
        """
        place = self.find(key)
        return None if place is None else place[1]

    def find(self, key: Any) -> tuple[KeyGroup, KeyRow] | None:
        """The same with the key group that it is in."""
        wanted = self.keys_of(key)
        h = self.hash_of(wanted)
        if not self.operator.instances:
            group = self.source.group(int(group_of(h, self.operator.key_groups)[0]))
            row = None if group is None else self._at(group, wanted, h)
            if group is not None and row is not None:
                return group, row
            if self.operator.placed is False:
                return None
        for elsewhere in self.source.groups():
            row = self._at(elsewhere, wanted, placed_hash(h, elsewhere.group, self.operator.key_groups))
            if row is not None:
                return elsewhere, row
        return None

    def rows(self) -> Iterator[KeyRow]:
        """Every key with its state, key group after key group. Cost: some 10 microseconds a key."""
        for group in self.source.groups():
            yield from key_rows(group, self.where)

    def schema(self, state: str) -> pa.Schema:
        """The columns that `scan` gives: the key's, `map_key` of a map, `value`, `stamp_ms` with a TTL."""
        return self._schema(self.operator.state(state))

    def scan(self, state: str, *, sizes: bool = False) -> Iterator[pa.Table]:
        """The rows of one state as tables, one or more a key group: the quick way to all of them.

        A list has a row for each element, in its order, and a map one for each entry. `stamp_ms` is when a
        value with a time to live was last stamped, by the clock of its TTL.

        Args:
            state: The state's name.
            sizes: Put `size_bytes` beside: about how many bytes the key and the value have.

        Raises:
            NotFound: There is no such state; or a file that the batch needs is gone.
            Unsupported: Some rows are of a former type that is not just narrower.
            Corrupt: A file or a row is damaged.
        """
        kept = self.operator.state(state)
        schema = self._schema(kept)
        for group in self.source.groups():
            yield from self._scanned(group, kept, schema, sizes=sizes)

    def ages(self, state: str) -> Iterator[pa.Table]:
        """What a time to live would go by: of each value the key columns, `stamp_ms` and `size_bytes`.

        The stamp is null where the state has no time to live, since then nobody noted when it was written.
        """
        columns = [*self.operator.keys.names, STAMP, SIZE]
        stamped = self.operator.state(state).ttl_ms is not None
        for table in self.scan(state, sizes=True):
            none = pa.nulls(table.num_rows, pa.int64())
            yield (table if stamped else table.append_column(STAMP, none)).select(columns)

    def hash_of(self, keys: pa.Table) -> Hashes:
        """The hashes of keys, of which a placement may have made others."""
        if self.operator.instances:
            return np.zeros(keys.num_rows, np.uint64)
        return self.hashes(keys)

    def _at(self, group: KeyGroup, wanted: pa.Table, h: Hashes) -> KeyRow | None:
        key = [column[0].as_py() for column in wanted.columns]
        comparable = comparable_key(key)
        rows = [row for row in key_rows(group, self.where, h) if comparable_key(row.key) == comparable]
        # State of earlier versions may hold two keys that differ in the sign of a zero.
        return next(
            (row for row in rows if repr(tuple(row.key)) == repr(tuple(key))), rows[0] if rows else None
        )

    def is_by_hash(self, owners: Run) -> bool:
        """Whether keys are where their hashes put them, and not where a placement does."""
        keys = key_table(owners, self.operator.keys)
        return bool((self.hash_of(keys) == owners.h).all())

    def _schema(self, kept: KeptState) -> pa.Schema:
        taken = _RESERVED & set(self.operator.keys.names)
        if taken:
            raise Invalid(
                "a key column has the name of a column beside it",
                where=self.where,
                found=", ".join(sorted(taken)),
                hint="read it key by key, as `holdfast state get` does",
            )
        return pa.schema([*self.operator.keys, *value_fields(kept)])

    def _scanned(
        self, group: KeyGroup, kept: KeptState, schema: pa.Schema, *, sizes: bool
    ) -> Iterator[pa.Table]:
        if kept.kind == BROADCAST:
            raise belongs_to_no_key(self.where, kept.name)
        parts = parts_of(group, self.where)
        owners = owners_of(parts)
        for part in parts:
            rows = None if owners is None else state_rows(part, owners, kept)
            if rows is None or not len(rows[0]):
                continue
            run, (map_keys, values, stamps) = rows
            keys = key_table(run, self.operator.keys)
            beside = {MAP_KEY: map_keys, VALUE: values, STAMP: stamps}
            arrays = [*keys.columns, *(beside[name] for name in schema.names[len(keys.schema) :])]
            table = pa.Table.from_arrays(arrays, schema=schema)
            if sizes:
                every = [column.combine_chunks() for column in keys.columns]
                of = [cell_bytes(whole) for column in every for whole in _arrays(column)]
                size = np.sum([*of, cell_bytes(map_keys), cell_bytes(values)], axis=0)
                table = table.append_column(SIZE, pa.array(size.astype(np.int64)))
            yield table


def value_fields(kept: KeptState) -> list[pa.Field]:
    """The columns beside the keys in the table of a state."""
    fields = [pa.field(MAP_KEY, kept.key_type)] if kept.kind == MAP else []
    fields.append(pa.field(VALUE, kept.type))
    return [*fields, pa.field(STAMP, pa.int64())] if kept.ttl_ms is not None else fields


def key_table_of(key: Any, schema: pa.Schema, where: str) -> pa.Table:
    """A key as a table of one row; given by column, in their order, or as the value of the only one.

    Raises:
        Invalid: It has other columns, or a value of another type.
    """
    values = _values_of(key, schema, where)
    arrays = [_key_column(value, column, where) for value, column in zip(values, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _key_column(value: Any, column: pa.Field, where: str) -> pa.Array:
    try:
        return column_of([value], column.type)
    except Unfit as error:
        raise Invalid(
            "a key does not have the type of its column",
            where=f"{where}, key column {column.name}",
            found=repr(value),
            expected=type_text(column.type),
            hint="give a value of this type",
        ) from error


def placed_hash(h: Hashes, group: int, key_groups: int) -> Hashes:
    """The hashes that keys have where a placement has put them into a group: brought into its range."""
    if key_groups == 1:
        return h
    low, high = range_of(group, key_groups)
    placed: Hashes = np.uint64(low) + h % np.uint64((1 << 64 if high is None else high) - low)
    return placed


def keyed_states(storage: Storage, batch_id: int | None = None) -> tuple[KeyedState, ...]:
    """The state of each keyed operator of Holdfast's at a committed batch, by their numbers.

    Args:
        storage: The checkpoint, or a savepoint's view.
        batch_id: A committed batch whose files are kept; the newest by default.

    Raises:
        NotFound: There is no checkpoint, or the batch is not committed.
        Corrupt: A file is damaged.
    """
    operators = keyed_with_states(storage, batch_id)
    return tuple(KeyedState(operator, Stored(storage, states)) for operator, states in operators)


def _values_of(key: Any, schema: pa.Schema, where: str) -> list[Any]:
    names = schema.names
    if isinstance(key, Mapping) and (set(key) == set(names) or len(names) > 1):
        if set(key) == set(names):
            return [key[name] for name in names]
    elif len(names) == 1 and not isinstance(key, (tuple, list)):
        return [key]
    elif isinstance(key, (tuple, list)) and len(key) == len(names):
        return list(key)
    raise Invalid(
        "a key has a value for each key column",
        where=where,
        found=repr(key),
        expected=", ".join(f"{field.name} {type_text(field.type)}" for field in schema),
        hint="give a dictionary by column, or the values in this order",
    )


def _arrays(column: Any) -> list[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]
