"""Whether a row of state is of a key that is to be forgotten, by columns of its key or of its value."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.at_rest.edit.state_columns import KEY, VALUE, at_path
from holdfast.at_rest.read.keys import typed
from holdfast.checkpoints.state.states import StateCodec
from holdfast.errors import Invalid
from holdfast.formats.rows.spark_types import Array, Atom, DataType, Decimal, Map, Struct
from holdfast.formats.rows.unsafe_row import RowCodec, is_fixed

# Fields of keys that are Spark's and no user's.
_SPARKS: Final = frozenset({"expirationMs", "expiryTimestampMs", "sessionStartTime", "index"})
_SLOT: Final = 8


@dataclass(frozen=True, slots=True)
class Subject:
    """Who or what is to be forgotten.

    Attributes:
        values: A value as it was written, by column; by None where any column of a key may have it.
    """

    values: Mapping[str | None, Any]

    @property
    def any_column(self) -> bool:
        """Whether it is looked for in every column of keys, and in no value."""
        return None in self.values

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it is looked for in; empty for every column of keys."""
        return tuple(value for value in self.values if value is not None)


def subject(key: str, column: str | None = None) -> Subject:
    """Who is meant: a bare value, a value of one column, a JSON object, or `column=value`.

    Raises:
        Invalid: It is empty, or null.
    """
    values: dict[str | None, Any]
    name, equals, rest = key.partition("=")
    if column is not None:
        values = {column: key}
    elif key.lstrip().startswith("{"):
        try:
            values = dict(json.loads(key))
        except ValueError as error:
            raise Invalid(
                "the key is no JSON",
                found=key[:200],
                expected=str(error),
                hint='write it as {"customer": "c7"}, or as customer=c7',
            ) from error
    elif equals and name.strip().isidentifier():
        values = {name.strip(): rest}
    else:
        values = {None: key}
    if not values or any(value is None or value == "" for value in values.values()):
        raise Invalid(
            "a key that is to be erased has a value",
            found=key[:200] or "nothing",
            hint="give the value itself, `column=value`, or a JSON object of columns",
        )
    return Subject(values)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A field that a value is looked for in."""

    side: str
    path: tuple[str, ...]
    type: DataType
    value: Any

    def of(self, row: Mapping[str, Any]) -> Any:
        """What a row has in it."""
        return at_path(row, self.path)


@dataclass(slots=True)
class Matcher:
    """Looks for a subject in the rows of one column family.

    Attributes:
        codec: The family.
        leaves: Where it is looked for, by column; a column that fits nowhere has none.
        needles: Bytes of which a row of it has one of each column.
        places: Where such bytes are in the row of a key, by column; None where that is not always the same.
        exact: The only key that is of it, as it is stored without the number of its family; None where others
            can be, or a value.
        possible: Whether a row can be of it at all.
        by_key: Whether the key's columns alone can tell.
        by_value: Whether a row can be of it by its value.
    """

    codec: StateCodec
    leaves: Mapping[str | None, tuple[Leaf, ...]]
    needles: tuple[tuple[bytes, ...], ...]
    places: tuple[tuple[tuple[int, bytes], ...], ...] | None
    exact: bytes | None
    possible: bool = field(init=False)
    by_key: bool = field(init=False)
    by_value: bool = field(init=False)
    _rows: dict[str, RowCodec] = field(default_factory=dict)

    def __post_init__(self) -> None:
        columns = self.leaves.values()
        self.possible = bool(columns) and all(columns)
        self.by_key = self.possible and all(any(leaf.side == KEY for leaf in column) for column in columns)
        self.by_value = self.possible and any(leaf.side == VALUE for column in columns for leaf in column)

    def may_have(self, key: bytes, value: bytes) -> bool:
        """Whether bytes may hold it; quick, and wrong at times, but never about a row that does."""
        return all(any(needle in key or needle in value for needle in column) for column in self.needles)

    def key_of(self, key: bytes) -> bool:
        """Whether a key, as it is stored without the number of its family, is of it."""
        if not self.by_key:
            return False
        data = self.codec.key_row(key)
        if self.places is None and not self.may_have(key, b""):
            return False
        for column in self.places or ():
            for at, word in column:
                if data[at : at + _SLOT] == word:
                    break
            else:
                return False
        row = self._row(KEY).decode(data)
        return all(
            any(leaf.side == KEY and leaf.of(row) == leaf.value for leaf in leaves)
            for leaves in self.leaves.values()
        )

    def row_of(self, key: bytes, value: bytes) -> bool:
        """Whether a row with a value, one of a list's perhaps, is of it."""
        if not self.by_value:
            return False
        keys = self._row(KEY).decode(self.codec.key_row(key))
        return any(
            self.values_of(keys, self._row(VALUE).decode(row))
            for row in self.codec.values.rows(value, self.codec.where)[0]
        )

    def values_of(self, keys: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
        """Whether a row of these fields is of it."""
        return self.possible and all(
            any(leaf.of(keys if leaf.side == KEY else values) == leaf.value for leaf in leaves)
            for leaves in self.leaves.values()
        )

    def _row(self, side: str) -> RowCodec:
        if side not in self._rows:
            self._rows[side] = RowCodec(self.codec.key_type if side == KEY else self.codec.value_type)
        return self._rows[side]


def matcher(codec: StateCodec, subject: Subject) -> Matcher:
    """What looks for a subject in a family.

    Raises:
        Corrupt: The family has no schema.
    """
    fields = [(KEY, path, type_) for path, type_ in _leaves(codec.key_type)]
    if not subject.any_column:
        fields += [(VALUE, path, type_) for path, type_ in _leaves(codec.value_type)]
    leaves = {
        column: tuple(
            Leaf(side, path, type_, fitting[0])
            for side, path, type_ in fields
            if _meant(column, path) and (fitting := _fitting(given, type_))
        )
        for column, given in subject.values.items()
    }
    needles = tuple(tuple({_needle(leaf) for leaf in fitting}) for fitting in leaves.values())
    return Matcher(codec, leaves, needles, _places(codec.key_type, leaves), _exact(codec, leaves))


def unsearched(codec: StateCodec, subject: Subject) -> tuple[str, ...]:
    """The columns of a family in which a subject cannot be looked for: those that hold many values.

    Of a subject with columns, those that could have one of these names inside.
    """
    sides = [codec.key_type] if subject.any_column else [codec.key_type, codec.value_type]
    return tuple(
        ".".join(path)
        for side in sides
        for path, names in _several(side)
        if subject.any_column or any(name.lower() in names for name in subject.columns)
    )


def _several(type_: Struct, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], set[str]]]:
    """The arrays and maps of a row, each with its own name and all that are in it."""
    collections = []
    for name, kind in zip(type_.names, type_.types, strict=True):
        if isinstance(kind, Struct):
            collections += _several(kind, (*path, name))
        elif isinstance(kind, (Array, Map)):
            collections.append(((*path, name), {name.lower(), *_names_in(kind)}))
    return collections


def _names_in(type_: DataType) -> set[str]:
    if isinstance(type_, Array):
        return _names_in(type_.element)
    if isinstance(type_, Map):
        return _names_in(type_.key) | _names_in(type_.value)
    if isinstance(type_, Struct):
        inner = (_names_in(kind) for kind in type_.types)
        return {name.lower() for name in type_.names}.union(*inner)
    return set()


def _exact(codec: StateCodec, leaves: Mapping[str | None, tuple[Leaf, ...]]) -> bytes | None:
    """The stored key that has these values and no other field."""
    by_path = {leaf.path: leaf for fitting in leaves.values() for leaf in fitting if leaf.side == KEY}
    alone = all(len(fitting) == 1 for fitting in leaves.values()) and len(by_path) == len(leaves)
    if not alone or codec.plain_keys is None or set(by_path) != {(name,) for name in codec.key_type.names}:
        return None
    values = {path[0]: leaf.value for path, leaf in by_path.items()}
    return codec.stored_key(RowCodec(codec.key_type).encode(values))


def _places(
    key: Struct, leaves: Mapping[str | None, tuple[Leaf, ...]]
) -> tuple[tuple[tuple[int, bytes], ...], ...] | None:
    """Where a key's row has each column: a word for each field, behind the bits that mark nulls."""
    words = -(-len(key.types) // (8 * _SLOT)) * _SLOT
    places = []
    for fitting in leaves.values():
        mine = [leaf for leaf in fitting if leaf.side == KEY]
        if not all(len(leaf.path) == 1 and is_fixed(leaf.type) for leaf in mine):
            return None
        places.append(tuple((words + _SLOT * key.names.index(leaf.path[0]), _needle(leaf)) for leaf in mine))
    return tuple(places)


def _meant(column: str | None, path: Sequence[str]) -> bool:
    return path[-1] not in _SPARKS if column is None else path[-1].lower() == column.lower()


def _leaves(type_: Struct, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], DataType]]:
    leaves: list[tuple[tuple[str, ...], DataType]] = []
    for name, kind in zip(type_.names, type_.types, strict=True):
        if isinstance(kind, Struct):
            leaves += _leaves(kind, (*path, name))
        elif isinstance(kind, Decimal) or (isinstance(kind, Atom) and kind.name != "void"):
            leaves.append(((*path, name), kind))
    return leaves


def _fitting(given: Any, type_: DataType) -> tuple[Any, ...]:
    """The value in a type, if it fits."""
    try:
        return (typed(given, type_, written=True),)
    except ValueError:
        return ()


def _needle(leaf: Leaf) -> bytes:
    """The bytes that a row has where a field has this value, whatever else is in it.

    What does not fit into a word stands behind the words, filled up to whole ones.
    """
    row = RowCodec(Struct(("x",), (leaf.type,))).encode({"x": leaf.value})
    return row[_SLOT : 2 * _SLOT] if is_fixed(leaf.type) else row[2 * _SLOT :]
