"""The editable states of a checkpoint, and their rows by column."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from holdfast.at_rest.keys import ColumnDecoder
from holdfast.at_rest.model import NamedOperator, NamedState, StateForm, type_text
from holdfast.at_rest.state_reader import FirstKey, first_key, no_key
from holdfast.at_rest.tables import EXPIRES
from holdfast.checkpoints.state.rocksdb import Pairs
from holdfast.checkpoints.state.rows import store_chunks
from holdfast.checkpoints.state.states import OperatorStates, StateCodec
from holdfast.errors import Invalid, Unsupported
from holdfast.formats.operators import FamilyUse, companion, use_of
from holdfast.formats.rows.spark_types import Atom, DataType, Decimal, Struct, arrow_atoms, parse_struct
from holdfast.formats.rows.spark_types import arrow_type as arrow_type_of
from holdfast.formats.rows.unsafe_row import RowCodec
from holdfast.layout import StoreId
from holdfast.storage.port import Storage

if TYPE_CHECKING:
    import pyarrow as pa


KEY: Final = "key"
VALUE: Final = "value"
# The index of an element in its list, or of a row among those of its join key, as a column.
PLACE: Final = "place"
# Structs that Spark wraps around users' columns.
_WRAPPERS: Final = frozenset({"key", "userKey", "elementKey", "value", "groupState"})


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a state.

    Attributes:
        name: The name of the column.
        side: The part of the row: the key, the value, or the index of a row among those of its key.
        path: The names of the nested fields that lead to the column.
        type: The Spark type, or the Arrow type for keyed state.
        nullable: Whether the column may be null.
    """

    name: str
    side: str
    path: tuple[str, ...]
    type: Any
    nullable: bool = True

    def of(self, key: Mapping[str, Any], value: Mapping[str, Any] | None) -> Any:
        """Return the value of the column in a row."""
        return at_path(key if self.side == KEY else value, self.path)


def columns_of(
    key: Struct, key_json: str, value: Struct, value_json: str, hidden: frozenset[str] = frozenset()
) -> tuple[Column, ...]:
    """Return the columns of a state, key columns first.

    Spark's wrapper structs, as in transformWithState with a TTL, are unwrapped. A value field with the name
    of a key field gets the prefix `value_`.

    Args:
        key: The type of the key.
        key_json: The type of the key as Spark's JSON, which also has the nullability.
        value: The type of the value.
        value_json: The type of the value as Spark's JSON.
        hidden: The internal fields of the key.
    """
    found: list[Column] = []
    for side, type_, text in ((KEY, key, key_json), (VALUE, value, value_json)):
        fields = json.loads(text)["fields"]
        for column in _flat(side, (), type_, fields):
            if side == KEY and column.path[0] in hidden:
                continue
            if column.type == Atom("void"):
                continue  # a placeholder for no value
            found.append(column)
    taken: set[str] = set()
    named = []
    for column in found:
        name = column.name
        while name.lower() in taken:
            name = f"{column.side}_{name}"
        taken.add(name.lower())
        named.append(Column(name, column.side, column.path, column.type, column.nullable))
    return tuple(named)


def _flat(
    side: str, path: tuple[str, ...], type_: Struct, fields: Sequence[Mapping[str, Any]]
) -> list[Column]:
    found: list[Column] = []
    for name, kind, described in zip(type_.names, type_.types, fields, strict=True):
        place = (*path, name)
        nullable = bool(described.get("nullable", True))
        if isinstance(kind, Struct) and name in _WRAPPERS and kind.names:
            found += _flat(side, place, kind, described["type"]["fields"])
        else:
            found.append(Column(name, side, place, kind, nullable))
    return found


def at_path(values: Any, path: Sequence[str]) -> Any:
    """Return the values at a path of fields; None below a null."""
    for name in path:
        if values is None:
            return None
        values = values[name]
    return values


def put_into(values: Mapping[str, Any], path: Sequence[str], new: Any) -> dict[str, Any]:
    """Return a copy of nested values with a new value at a path."""
    name, *rest = path
    changed = dict(values)
    changed[name] = put_into(values[name] or {}, rest, new) if rest else new
    return changed


def type_words(type_: Any) -> str:
    """Return the type of a column for display: Spark's type, or Arrow's for keyed state."""
    if isinstance(type_, DataType):
        return type_text(type_)
    from holdfast.worker.declarations.types import type_text as arrow_text

    return arrow_text(type_)


def arrow_type(type_: Any, where: str) -> pa.DataType:
    """Return the Arrow type for a column's type, which for keyed state is an Arrow type already.

    Raises:
        Unsupported: Arrow has no equivalent type.
    """
    import pyarrow as pa

    if isinstance(type_, pa.DataType):
        return type_

    atoms = {**arrow_atoms(), "time": pa.int64()}
    del atoms["calendar"]
    try:
        return arrow_type_of(type_, atoms)
    except KeyError as error:
        kind = type_words(Atom(error.args[0]))
        raise Unsupported(
            f"columns of type {kind} cannot be edited",
            code="HF-E7011",
            where=where,
            hint="change the column in the query, or delete the row with"
            " `holdfast state edit SP STATE --key KEY --delete`",
        ) from error


# Companion families that are updated with a state of transformWithState, by their names in edits.
_COMPANIONS: Final = {
    "rows": FamilyUse.LIST_COUNTER,
    "count": FamilyUse.EXPIRY_COUNTER,
    "least": FamilyUse.FIRST_EXPIRY,
    "expiry": FamilyUse.EXPIRY_INDEX,
}
EXPIRY: Final = "ttlExpirationMs"
INDEX: Final = "index"


class RowKind(str, Enum):
    """The layout of the rows that users see."""

    SINGLE = "single"
    LIST = "list"
    TIMER = "timer"
    JOIN = "join"
    JOIN_BY_TIME = "join by time"

    @property
    def several(self) -> bool:
        """Return whether a key has several rows, each with an index."""
        return self in (RowKind.LIST, RowKind.JOIN, RowKind.JOIN_BY_TIME)


class NamedColumns:
    """The base class of objects with a `label` and named `columns`."""

    __slots__ = ()
    label: str
    columns: tuple[Column, ...]

    def column(self, name: str) -> Column:
        """Return a column by its name, ignoring case if no name matches exactly.

        Raises:
            Invalid: The column does not exist.
        """
        exact = [column for column in self.columns if column.name == name]
        fitting = exact or [column for column in self.columns if column.name.lower() == name.lower()]
        if len(fitting) == 1:
            return fitting[0]
        raise Invalid(
            "unknown column",
            code="HF-E2058",
            where=self.label,
            found=name,
            expected=", ".join(column.name for column in self.columns),
            hint="list the columns of each state with `holdfast state list CHECKPOINT`",
        )

    def unfit(self, column: str, found: str, expected: str) -> Invalid:
        """Return the error for a value that does not match its column, or for an unknown column."""
        return Invalid(
            "the edit does not match the schema of the state",
            code="HF-E2059",
            where=f"{self.label}, column {column}",
            found=found,
            expected=expected,
            hint="list the columns and their types with `holdfast state list CHECKPOINT`",
        )

    def existing_key_error(self, row: Mapping[str, Any]) -> Invalid:
        """Return the error for a row to insert under an existing key."""
        key = {column.name: row.get(column.name) for column in self.key_columns()}
        return Invalid(
            "the key of the row to insert exists already",
            code="HF-E2060",
            where=self.label,
            found=str(key)[:200],
            hint="change the row with --set and --key",
        )

    def key_columns(self) -> tuple[Column, ...]:
        """Return the columns that belong to the stored key."""
        return tuple(column for column in self.columns if column.side == KEY)

    def repeated(self) -> dict[str, Column]:
        """Return the value columns that repeat a key column, by their names."""
        keys = {column.path[-1]: column for column in self.key_columns()}
        return {
            column.name: keys[column.path[-1]]
            for column in self.columns
            if column.side == VALUE and len(column.path) == 1 and column.path[-1] in keys
        }


@dataclass(frozen=True)
class EditableState(NamedColumns):
    """An editable state of an operator, as users see it.

    Attributes:
        label: The name of the state, with the operator's name if that has several states.
        operator: The operator.
        kind: The layout of the rows.
        main: The column family with the rows.
        paired: Spark's companion families, by role: `rows` and `count` count the rows, `least` has the
            earliest of their times, `expiry` indexes them by time, and `reverse` indexes timers by time.
        key: The columns of a user's key.
        columns: All columns of the state.
        first_key: The function that returns an existing key, for messages.
    """

    label: str
    operator: OperatorStates
    kind: RowKind
    main: StateCodec
    paired: dict[str, StateCodec]
    key: Struct
    columns: tuple[Column, ...]
    first_key: FirstKey = field(default=no_key, repr=False, compare=False)

    @property
    def families(self) -> tuple[StateCodec, ...]:
        """All column families that an edit may change."""
        return (self.main, *self.paired.values())

    @property
    def stores(self) -> tuple[str, ...]:
        """The names of the stores with these families."""
        return tuple(dict.fromkeys(family.name.store for family in self.families))

    def rows(self, view: Storage, partition: int) -> Iterator[tuple[StateCodec, Pairs]]:
        """Yield the rows of a partition in all families of the stores."""
        for name in self.stores:
            store = StoreId(self.operator.operator_id, partition, name)
            yield from store_chunks(view, self.operator, store)


def editable(operator: NamedOperator, state: NamedState) -> EditableState:
    """Return a state in its editable form.

    Raises:
        Unsupported: The rows of the state cannot be changed safely.
        Corrupt: The state has no schema.
    """
    main = state.codec
    if main is None:
        raise Unsupported(
            "key groups cannot be edited row by row",
            code="HF-E7012",
            where=state.full_name,
            hint="edit the operator or one of its states, as listed by `holdfast state list CHECKPOINT`",
        )
    if main.values.avro:
        raise Unsupported(
            "state in Avro encoding cannot be edited",
            code="HF-E7013",
            where=main.where,
            found="spark.sql.streaming.stateStore.encodingFormat=avro",
            expected="unsaferow",
            hint="set the values in the query's own code, or start a new query with the default"
            " encodingFormat, unsaferow",
        )
    codecs = {family.name.label: family for family in operator.files.declared_codecs()}
    kind, paired = _row_layout(main, codecs, state)
    for codec in (main, *paired.values()):
        codec.require_schema()
    return EditableState(
        label=state.full_name,
        operator=operator.files,
        kind=kind,
        main=main,
        paired=paired,
        key=state.key,
        columns=_columns(main, kind, ttl=state.ttl),
        first_key=partial(first_key, state),
    )


def _row_layout(
    main: StateCodec, codecs: dict[str, StateCodec], state: NamedState
) -> tuple[RowKind, dict[str, StateCodec]]:
    labels = {use: companion(main.name.operator, main.name.label, use) for use in FamilyUse}
    main_use = use_of(main.name.operator, main.name.label)
    if main_use is FamilyUse.JOIN_ROWS:
        return RowKind.JOIN, {"count": codecs[labels[FamilyUse.JOIN_COUNTS]]}
    if main_use is FamilyUse.JOIN_ROWS_BY_TIME:
        times = codecs.get(labels[FamilyUse.JOIN_TIMES])
        return RowKind.JOIN_BY_TIME, {} if times is None else {"count": times}
    if state.form is StateForm.TIMERS:
        return RowKind.TIMER, {"reverse": codecs[labels[FamilyUse.TIMER_INDEX]]}
    paired = {role: codecs[labels[use]] for role, use in _COMPANIONS.items() if labels[use] in codecs}
    return (RowKind.LIST if {"rows", "least"} & paired.keys() else RowKind.SINGLE), paired


def _columns(main: StateCodec, kind: RowKind, *, ttl: bool) -> tuple[Column, ...]:
    schema = main.require_schema()
    hidden = frozenset({INDEX}) if kind is RowKind.JOIN else frozenset()
    columns = columns_of(
        parse_struct(schema.key_schema, main.where),
        schema.key_schema,
        parse_struct(schema.value_schema, main.where),
        schema.value_schema,
        hidden,
    )
    if ttl:
        columns = tuple(
            Column(EXPIRES, column.side, column.path, column.type, column.nullable)
            if column.path == (EXPIRY,)
            else column
            for column in columns
        )
    if kind.several:
        columns = (*columns, Column(_free(INDEX, columns), PLACE, (), Atom("long"), nullable=False))
    return columns


def _free(name: str, columns: Sequence[Column]) -> str:
    taken = {column.name.lower() for column in columns}
    while name in taken:
        name = f"{name}_"
    return name


Values = Mapping[str, Any]
# Types with the same Arrow representation, whether built from columns or from values.
_PLAIN: Final = frozenset(
    {
        "boolean",
        "byte",
        "short",
        "integer",
        "long",
        "float",
        "double",
        "string",
        "binary",
        "date",
        "timestamp",
    }
)


class RowsView(Protocol):
    """A sequence of rows, as dictionaries by column name."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def __getitem__(self, at: int, /) -> Values:
        """Return one row."""

    def __iter__(self) -> Iterator[Values]:
        """Iterate over the rows."""


def show_row(columns: Sequence[Column], key: Values, value: Values, place: int | None = None) -> Values:
    """Return a row as a dictionary by column name, from the fields of its key and value."""
    return {column.name: place if column.side == PLACE else column.of(key, value) for column in columns}


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Stored rows with one value each.

    Attributes:
        columns: The columns of the state.
        key: The codec of keys.
        value: The codec of values.
        keys: The keys, as UnsafeRows.
        values: The values, as UnsafeRows.
        where: The state, for messages.
    """

    columns: Sequence[Column]
    key: RowCodec
    value: RowCodec
    keys: Sequence[bytes]
    values: Sequence[bytes]
    where: str

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, at: int) -> Values:
        key, value = self.decoded(at)
        return show_row(self.columns, key, value)

    def __iter__(self) -> Iterator[Values]:
        return (self[at] for at in range(len(self)))

    def decoded(self, at: int) -> tuple[Values, Values]:
        """Return the fields of the key and of the value of a row."""
        return self.key.decode(self.keys[at]), self.value.decode(self.values[at])

    def arrays(self, types: Mapping[str, pa.DataType]) -> list[pa.Array] | None:
        """Return the columns that have a type, in order of the types; None if they must be built row by row.

        Raises:
            Corrupt: A row is damaged.
        """
        by_name = {column.name: column for column in self.columns}
        columns = [by_name[name] for name in types]
        if not all(_plain(column) for column in columns):
            return None
        stored = {KEY: (self.key.type, self.keys), VALUE: (self.value.type, self.values)}
        sides = {side: _by_name(*stored[side], self.where) for side in {column.side for column in columns}}
        arrays = []
        for column in columns:
            first, *rest = column.path
            array = sides[column.side][first]
            for name in rest:
                names = [array.type.field(number).name for number in range(array.type.num_fields)]
                array = array.flatten()[names.index(name)]
            if array.type != types[column.name]:
                return None
            arrays.append(array)
        return arrays


def _plain(column: Column) -> bool:
    if column.side == PLACE:
        return False
    return isinstance(column.type, Decimal) or (isinstance(column.type, Atom) and column.type.name in _PLAIN)


def _by_name(type_: Struct, rows: Sequence[bytes], where: str) -> dict[str, pa.Array]:
    return dict(zip(type_.names, ColumnDecoder(type_, where).take_apart(rows), strict=True))
