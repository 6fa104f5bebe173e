"""Reading keyed state by users' keys: one key, all keys, or columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.at_rest.keyed_operators import (
    BROADCAST,
    MAP,
    KeptState,
    KeyedOperator,
    belongs_to_no_key,
    keyed_with_states,
)
from holdfast.checkpoints.keyed import (
    SHARED,
    KeyGroup,
    KeyRow,
    Part,
    key_rows,
    parts_of,
    stored_group,
    stored_groups,
)
from holdfast.checkpoints.state.contents import ContentSum
from holdfast.checkpoints.state.states import OperatorStates
from holdfast.errors import Invalid, Unsupported
from holdfast.formats.rows.xxhash64 import key_hashes
from holdfast.json_shapes import JsonShape
from holdfast.storage.port import Storage
from holdfast.worker.arrays import comparable_key, numbers
from holdfast.worker.declarations.types import type_text
from holdfast.worker.interface import STAMP_PREFIX, VALUE_PREFIX
from holdfast.worker.runtime.columns import Unfit, column_of
from holdfast.worker.state.layout import KEY_PREFIX, ROWS, group_of, range_of
from holdfast.worker.state.tables import Run, concatenated, sorted_run

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdfast.worker.arrays import Hashes


_IDENTITY: Final = ("h", "ord", "dead")


class GroupSource(Protocol):
    """The source of one operator's key groups."""

    def group(self, number: int) -> KeyGroup | None:
        """Return one key group; None if it has no state."""
        ...

    def groups(self) -> Iterator[KeyGroup]:
        """Yield every key group that has state, in ascending order within a partition."""
        ...


@dataclass(frozen=True, slots=True)
class StoredGroups:
    """The key groups of an operator in a checkpoint, or in a savepoint's view.

    Attributes:
        storage: The checkpoint.
        states: The reader of the operator's rows.
    """

    storage: Storage
    states: OperatorStates

    def group(self, number: int) -> KeyGroup | None:
        """See `GroupSource`."""
        return stored_group(self.storage, self.states, number)

    def groups(self) -> Iterator[KeyGroup]:
        """See `GroupSource`."""
        return stored_groups(self.storage, self.states)


class GroupsInMemory:
    """Key groups held in memory."""

    def __init__(self, groups: Iterable[KeyGroup]) -> None:
        self._groups: Mapping[int, KeyGroup] = {group.group: group for group in groups}

    def group(self, number: int) -> KeyGroup | None:
        """See `GroupSource`."""
        return self._groups.get(number)

    def groups(self) -> Iterator[KeyGroup]:
        """See `GroupSource`."""
        return (self._groups[number] for number in sorted(self._groups))


def key_table(run: Run, keys: pa.Schema) -> pa.Table:
    """Return the key columns of rows, under the user's names."""
    columns = [run.column(f"{KEY_PREFIX}{at}") for at in range(len(keys))]
    return pa.Table.from_arrays(columns, schema=keys)


def owners_of(parts: Sequence[Part]) -> Run | None:
    """Return the keys of a group with their identities, from parts of any schema; None if it has no keys."""
    batches = []
    for part in parts:
        run = part.tables.get(ROWS)
        if run is not None:
            names = [name for name in run.batch.schema.names if name.startswith(KEY_PREFIX)]
            batches.append(run.batch.select([*_IDENTITY, *names]))
    return sorted_run(concatenated(batches)) if batches else None


def state_rows(part: Part, owners: Run, state: KeptState) -> tuple[Run, list[pa.Array]] | None:
    """Return the rows of a state in one part of a group: owners, map keys, values and stamps.

    Args:
        part: The part.
        owners: The keys of the group.
        state: The state in its current form, to which values of an older type are widened.

    Returns:
        The rows; None if the part has no rows of the state.

    Raises:
        Unsupported: The part has the state in a different type.
    """
    if state.has_elements:
        return _element_rows(part, owners, state)
    run = part.tables.get(ROWS)
    value = f"{VALUE_PREFIX}{state.name}"
    if run is None or value not in part.form.tables[ROWS].names:
        return None
    run = run.take(numbers(run.column(value).is_valid()))
    stamp = f"{STAMP_PREFIX}{state.name}"
    has_stamp = stamp in part.form.tables[ROWS].names
    stamps = run.column(stamp) if has_stamp else pa.nulls(len(run), pa.int64())
    return run, [pa.nulls(len(run)), fitted(run.column(value), state.type, state.name), stamps]


def _element_rows(part: Part, owners: Run, state: KeptState) -> tuple[Run, list[pa.Array]] | None:
    run = part.tables.get(state.name)
    if run is None:
        return None
    names = part.form.tables[state.name].names
    places = owners.find(run.h, run.ord)
    own = (places >= 0) & (run.ord != SHARED)
    rows = run.take(own)
    keys = Run(owners.batch.take(pa.array(places[own])))
    map_keys = fitted(rows.column("k"), state.key_type, state.name) if "k" in names else pa.nulls(len(rows))
    stamps = rows.column("t") if "t" in names else pa.nulls(len(rows), pa.int64())
    return keys, [map_keys, fitted(rows.column("v"), state.type, state.name), stamps]


def fitted(column: pa.Array, kind: pa.DataType | None, name: str) -> pa.Array:
    """Return a column cast to a wider type.

    Raises:
        Unsupported: The types do not match.
    """
    if kind is None or column.type == kind:
        return column
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise Unsupported(
            f"state {name!r} has rows of an earlier type that have not been converted yet",
            code="HF-E7002",
            found=str(column.type),
            expected=str(kind),
            hint="run the query until its batches have rewritten all key groups, then try again",
        ) from error


def cell_bytes(column: pa.Array) -> NDArray[np.int64]:
    """Return the approximate size of each cell of a column; exact for numbers, texts and bytes."""
    kind = column.type
    if pa.types.is_null(kind) or not len(column):
        return np.zeros(len(column), np.int64)
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind):
        return numbers(pc.fill_null(pc.binary_length(column), 0)).astype(np.int64)
    if pa.types.is_nested(kind):
        return np.full(len(column), -(-column.nbytes // len(column)), np.int64)
    return np.full(len(column), max(kind.bit_width // 8, 1), np.int64)


# In addition to the key columns.
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
class KeyedStateReader:
    """A reader of the state of one keyed operator.

    Attributes:
        operator: The operator and its states.
        source: The source of the operator's key groups.
        hashes: The hash function of keys: Spark's hash.
    """

    operator: KeyedOperator
    source: GroupSource
    hashes: Callable[[pa.Table], Hashes] = field(default=key_hashes, compare=False, repr=False)

    @property
    def where(self) -> str:
        """The name of the operator, for messages."""
        return f"operator {self.operator.name}"

    def keys_of(self, key: Any) -> pa.Table:
        """Return a key, given by column, as values in order, or as one value, as a table of one row.

        Raises:
            Invalid: The key has other columns, or a value of a different type.
        """
        return key_table_of(key, self.operator.keys, self.where)

    def group_of(self, key: Any) -> int:
        """Return the key group of a key's hash; a placement function may use a different group."""
        return int(group_of(self.hash_of(self.keys_of(key)), self.operator.key_groups)[0])

    def get(self, key: Any) -> KeyRow | None:
        """Return all state of one key, including expired values not cleaned up yet; None without any.

        Cost: looks up and decodes one key group. If keys may be placed by a placement function, a key that is
        not in the group of its hash is searched in all groups.

        Raises:
            Invalid: The key has other columns, or a value of a different type.
            NotFound: A file that the batch needs is missing.
            Corrupt: A file or a row is damaged.
        """
        place = self.find(key)
        return None if place is None else place[1]

    def find(self, key: Any) -> tuple[KeyGroup, KeyRow] | None:
        """Return all state of one key with its key group."""
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
        """Yield every key with its state, by key group. Cost: about 10 microseconds per key."""
        for group in self.source.groups():
            yield from key_rows(group, self.where)

    def schema(self, state: str) -> pa.Schema:
        """Return the columns of `scan`: key columns, `map_key` of a map, `value`, `stamp_ms` with a TTL."""
        return self._schema(self.operator.state(state))

    def scan(self, state: str, *, sizes: bool = False) -> Iterator[pa.Table]:
        """Yield the rows of one state as tables, one or more per key group; the fastest way to read all rows.

        A list has a row for each element, in order, and a map has a row for each entry. `stamp_ms` is the
        time when a value with a TTL was last stamped, by the clock of its TTL.

        Args:
            state: The state's name.
            sizes: Whether to add the column `size_bytes`, the approximate size of the key and the value.

        Raises:
            NotFound: The state does not exist; or a file that the batch needs is missing.
            Unsupported: Some rows have an earlier type that cannot be widened to the current one.
            Corrupt: A file or a row is damaged.
        """
        kept = self.operator.state(state)
        schema = self._schema(kept)
        for group in self.source.groups():
            yield from self._scanned(group, kept, schema, sizes=sizes)

    def ages(self, state: str) -> Iterator[pa.Table]:
        """Yield the ages of values for a TTL: key columns, `stamp_ms` and `size_bytes` of each value.

        The stamp is null if the state has no TTL, because the time of writing is then not recorded.
        """
        columns = [*self.operator.keys.names, STAMP, SIZE]
        stamped = self.operator.state(state).ttl_ms is not None
        for table in self.scan(state, sizes=True):
            none = pa.nulls(table.num_rows, pa.int64())
            yield (table if stamped else table.append_column(STAMP, none)).select(columns)

    def hash_of(self, keys: pa.Table) -> Hashes:
        """Return the hashes of keys, before any placement function."""
        if self.operator.instances:
            return np.zeros(keys.num_rows, np.uint64)
        return self.hashes(keys)

    def _at(self, group: KeyGroup, wanted: pa.Table, h: Hashes) -> KeyRow | None:
        key = [column[0].as_py() for column in wanted.columns]
        comparable = comparable_key(key)
        rows = [row for row in key_rows(group, self.where, h) if comparable_key(row.key) == comparable]
        # State of earlier versions may have two keys that differ only in the sign of a zero.
        return next(
            (row for row in rows if repr(tuple(row.key)) == repr(tuple(key))), rows[0] if rows else None
        )

    def is_by_hash(self, owners: Run) -> bool:
        """Return whether keys are placed by hash and not by a placement function."""
        keys = key_table(owners, self.operator.keys)
        return bool((self.hash_of(keys) == owners.h).all())

    def _schema(self, kept: KeptState) -> pa.Schema:
        taken = _RESERVED & set(self.operator.keys.names)
        if taken:
            raise Invalid(
                "the state cannot be read as a table, because a key column has a reserved name",
                code="HF-E2021",
                where=self.where,
                found=", ".join(sorted(taken)),
                hint="read the state key by key with `holdfast state get`",
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
    """Return the columns of a state's table, except the key columns."""
    fields = [pa.field(MAP_KEY, kept.key_type)] if kept.kind == MAP else []
    fields.append(pa.field(VALUE, kept.type))
    return [*fields, pa.field(STAMP, pa.int64())] if kept.ttl_ms is not None else fields


def key_table_of(key: Any, schema: pa.Schema, where: str) -> pa.Table:
    """Return a key, given by column, as values in order, or as one value, as a table of one row.

    Raises:
        Invalid: The key has other columns, or a value of a different type.
    """
    values = _values_of(key, schema, where)
    arrays = [_key_column(value, column, where) for value, column in zip(values, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _key_column(value: Any, column: pa.Field, where: str) -> pa.Array:
    try:
        return column_of([value], column.type)
    except Unfit as error:
        raise Invalid(
            "a key value does not have the type of the key column",
            code="HF-E2022",
            where=f"{where}, key column {column.name}",
            found=repr(value),
            expected=f"a value of type {type_text(column.type)}",
            hint="convert the value to the type of the key column",
        ) from error


def placed_hash(h: Hashes, group: int, key_groups: int) -> Hashes:
    """Return the hashes of keys placed by a placement function, moved into the hash range of their group."""
    if key_groups == 1:
        return h
    low, high = range_of(group, key_groups)
    placed: Hashes = np.uint64(low) + h % np.uint64((1 << 64 if high is None else high) - low)
    return placed


def keyed_states(storage: Storage, batch_id: int | None = None) -> tuple[KeyedStateReader, ...]:
    """Return the state reader of each keyed operator at a committed batch, by number.

    Args:
        storage: The checkpoint, or a savepoint's view.
        batch_id: A committed batch whose files are kept; the newest by default.

    Raises:
        NotFound: The checkpoint does not exist, or the batch is not committed.
        Corrupt: A file is damaged.
    """
    operators = keyed_with_states(storage, batch_id)
    return tuple(KeyedStateReader(operator, StoredGroups(storage, states)) for operator, states in operators)


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
        "the key does not have one value for each key column",
        code="HF-E2023",
        where=where,
        found=repr(key),
        expected=", ".join(f"{field.name} {type_text(field.type)}" for field in schema),
        hint="give a dictionary of column names and values, or the values in this order",
    )


def _arrays(column: Any) -> list[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


_CHUNK = 1024


@dataclass(frozen=True, slots=True)
class KeyedContent(JsonShape):
    """The content of a keyed operator.

    Attributes:
        operator: The name of the operator.
        keys: The number of keys.
        digest: A hash of all keys with their state and timers, independent of their order.
    """

    operator: str
    keys: int
    digest: str


def keyed_contents(checkpoint: Storage) -> tuple[KeyedContent, ...]:
    """Return the content of each keyed operator at the newest committed batch.

    Cost: about 15 microseconds per key.

    Raises:
        NotFound: A file is missing.
        Corrupt: A file or a blob is damaged.
    """
    found = []
    for state in keyed_states(checkpoint):
        total = ContentSum()
        rows = state.rows()
        while chunk := list(islice(rows, _CHUNK)):
            total.add([repr(row.key).encode() for row in chunk], [_comparable_bytes(row) for row in chunk])
        found.append(KeyedContent(state.operator.name, total.rows, total.digest()))
    return tuple(found)


def _comparable_bytes(row: KeyRow) -> bytes:
    values = sorted((name, _ordered(value)) for name, value in row.values.items())
    stamps = sorted((name, _ordered(stamp)) for name, stamp in row.stamps.items())
    return repr((values, stamps, sorted(map(repr, row.timers)))).encode()


def _ordered(value: Any) -> str:
    """Return a value as text, with the entries of maps sorted."""
    return repr(sorted(map(repr, value.items()))) if isinstance(value, dict) else repr(value)
