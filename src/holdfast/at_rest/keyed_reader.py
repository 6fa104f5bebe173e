"""Read keyed state by its users' keys: one key, all of them, or columns."""

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
        """One group; None where it has no state."""
        ...

    def groups(self) -> Iterator[KeyGroup]:
        """Every group that has state; numbers ascend within a partition."""
        ...


@dataclass(frozen=True, slots=True)
class StoredGroups:
    """The key groups of an operator in a checkpoint, or in a savepoint's view.

    Attributes:
        storage: The checkpoint.
        states: What reads its rows.
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
    """Key groups in memory: made, changed or gathered elsewhere."""

    def __init__(self, groups: Iterable[KeyGroup]) -> None:
        self._groups: Mapping[int, KeyGroup] = {group.group: group for group in groups}

    def group(self, number: int) -> KeyGroup | None:
        """See `GroupSource`."""
        return self._groups.get(number)

    def groups(self) -> Iterator[KeyGroup]:
        """See `GroupSource`."""
        return (self._groups[number] for number in sorted(self._groups))


def key_table(run: Run, keys: pa.Schema) -> pa.Table:
    """The key columns of rows, under the user's names."""
    columns = [run.column(f"{KEY_PREFIX}{at}") for at in range(len(keys))]
    return pa.Table.from_arrays(columns, schema=keys)


def owners_of(parts: Sequence[Part]) -> Run | None:
    """The keys of a group with their identities, of whatever form; None where it has none."""
    batches = []
    for part in parts:
        run = part.tables.get(ROWS)
        if run is not None:
            names = [name for name in run.batch.schema.names if name.startswith(KEY_PREFIX)]
            batches.append(run.batch.select([*_IDENTITY, *names]))
    return sorted_run(concatenated(batches)) if batches else None


def state_rows(part: Part, owners: Run, state: KeptState) -> tuple[Run, list[pa.Array]] | None:
    """The rows of a state in one part of a group: whose they are, and map keys, values and stamps beside.

    Args:
        part: The part.
        owners: The keys of the group.
        state: The state, as it is to come out: values of an older type are widened.

    Returns:
        None where the part has nothing of it.

    Raises:
        Unsupported: The part has the state in another type.
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
    """A column in a wider type of its kind.

    Raises:
        Unsupported: It has another type altogether.
    """
    if kind is None or column.type == kind:
        return column
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise Unsupported(
            "a state has rows of a former type that were not brought into today's yet",
            code="HF-E7002",
            where=f"state {name}",
            found=str(column.type),
            expected=str(kind),
            hint="run the query until all of its key groups are written anew, then look again",
        ) from error


def cell_bytes(column: pa.Array) -> NDArray[np.int64]:
    """About how many bytes each cell of a column has: exact for numbers, texts and bytes."""
    kind = column.type
    if pa.types.is_null(kind) or not len(column):
        return np.zeros(len(column), np.int64)
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind):
        return numbers(pc.fill_null(pc.binary_length(column), 0)).astype(np.int64)
    if pa.types.is_nested(kind):
        return np.full(len(column), -(-column.nbytes // len(column)), np.int64)
    return np.full(len(column), max(kind.bit_width // 8, 1), np.int64)


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
class KeyedStateReader:
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
            NotFound: The state does not exist; or a file that the batch needs is gone.
            Unsupported: Some rows are of a former type that is not just narrower.
            Corrupt: A file or a row is damaged.
        """
        kept = self.operator.state(state)
        schema = self._schema(kept)
        for group in self.source.groups():
            yield from self._scanned(group, kept, schema, sizes=sizes)

    def ages(self, state: str) -> Iterator[pa.Table]:
        """Return the ages for a TTL: of each value the key columns, `stamp_ms` and `size_bytes`.

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
        """Return whether keys are placed by their hashes, and not by a placement."""
        keys = key_table(owners, self.operator.keys)
        return bool((self.hash_of(keys) == owners.h).all())

    def _schema(self, kept: KeptState) -> pa.Schema:
        taken = _RESERVED & set(self.operator.keys.names)
        if taken:
            raise Invalid(
                "a key column has the name of a column beside it",
                code="HF-E2021",
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
            code="HF-E2022",
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


def keyed_states(storage: Storage, batch_id: int | None = None) -> tuple[KeyedStateReader, ...]:
    """The state of each keyed operator of Holdfast's at a committed batch, by their numbers.

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
        "a key has a value for each key column",
        code="HF-E2023",
        where=where,
        found=repr(key),
        expected=", ".join(f"{field.name} {type_text(field.type)}" for field in schema),
        hint="give a dictionary by column, or the values in this order",
    )


def _arrays(column: Any) -> list[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


_CHUNK = 1024


@dataclass(frozen=True, slots=True)
class KeyedContent(JsonShape):
    """The content of one of Holdfast's keyed operators.

    Attributes:
        operator: Its name.
        keys: How many keys it has.
        digest: A hash of them with all their state and timers, in no order.
    """

    operator: str
    keys: int
    digest: str


def keyed_contents(checkpoint: Storage) -> tuple[KeyedContent, ...]:
    """The content of each keyed operator at the newest committed batch.

    Cost: some 15 microseconds a key.

    Raises:
        NotFound: A file is gone.
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
    """A value in words; a map's entries in an order of their own, since theirs means nothing."""
    return repr(sorted(map(repr, value.items()))) if isinstance(value, dict) else repr(value)
