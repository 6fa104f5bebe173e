"""The columns by which people see a state: the fields of its key and value, each under its own name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast.at_rest.read.model import type_text
from holdfast.errors import Unsupported
from holdfast.formats.rows.arrow_types import arrow_atoms
from holdfast.formats.rows.arrow_types import arrow_type as arrow_type_of
from holdfast.formats.rows.spark_types import Atom, DataType, Struct

if TYPE_CHECKING:
    import pyarrow as pa

KEY: Final = "key"
VALUE: Final = "value"
# Where in the list, or which row of its join key: a column of its own.
PLACE: Final = "place"
# Structs that Spark puts around what users have named.
_WRAPPERS: Final = frozenset({"key", "userKey", "elementKey", "value", "groupState"})


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a state.

    Attributes:
        name: Its name.
        side: Whether it is of the key, of the value, or a row's place among others of its key.
        path: The names of the fields that lead to it.
        type: Its type: Spark's, or of keyed state Arrow's.
        nullable: Whether it may be null.
    """

    name: str
    side: str
    path: tuple[str, ...]
    type: Any
    nullable: bool = True

    def of(self, key: Mapping[str, Any], value: Mapping[str, Any] | None) -> Any:
        """Its value in a row."""
        return at_path(key if self.side == KEY else value, self.path)


def columns_of(
    key: Struct, key_json: str, value: Struct, value_json: str, hidden: frozenset[str] = frozenset()
) -> tuple[Column, ...]:
    """The columns of a state, the key's first.

    What Spark wraps, as in transformWithState with a time to live, is unwrapped. A field of the value that
    has the name of one of the key gets `value_` before it.

    Args:
        key: The key's type.
        key_json: The same as Spark's JSON, which also says what may be null.
        value: The value's type.
        value_json: Likewise.
        hidden: Fields of the key that nobody sees.
    """
    found: list[Column] = []
    for side, type_, text in ((KEY, key, key_json), (VALUE, value, value_json)):
        fields = json.loads(text)["fields"]
        for column in _flat(side, (), type_, fields):
            if side == KEY and column.path[0] in hidden:
                continue
            if column.type == Atom("void"):
                continue  # it stands for no value at all
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
    for name, kind, field in zip(type_.names, type_.types, fields, strict=True):
        place = (*path, name)
        nullable = bool(field.get("nullable", True))
        if isinstance(kind, Struct) and name in _WRAPPERS and kind.names:
            found += _flat(side, place, kind, field["type"]["fields"])
        else:
            found.append(Column(name, side, place, kind, nullable))
    return found


def at_path(values: Any, path: Sequence[str]) -> Any:
    """What is at a path of fields; None below a null."""
    for name in path:
        if values is None:
            return None
        values = values[name]
    return values


def put_into(values: Mapping[str, Any], path: Sequence[str], new: Any) -> dict[str, Any]:
    """The same values with another one at a path."""
    name, *rest = path
    changed = dict(values)
    changed[name] = put_into(values[name] or {}, rest, new) if rest else new
    return changed


def type_words(type_: Any) -> str:
    """The type of a column in words: Spark's, or of keyed state Arrow's."""
    if isinstance(type_, DataType):
        return type_text(type_)
    from holdfast.worker.declarations.types import type_text as arrow_text

    return arrow_text(type_)


def arrow_type(type_: Any, where: str) -> pa.DataType:
    """The same type of Arrow's; that of keyed state is one already.

    Raises:
        Unsupported: Arrow has none.
    """
    import pyarrow as pa

    if isinstance(type_, pa.DataType):
        return type_

    atoms = {**arrow_atoms(), "time": pa.int64()}
    del atoms["calendar"]
    try:
        return arrow_type_of(type_, atoms)
    except KeyError as error:
        raise Unsupported(
            "a column of this type cannot be edited",
            where=where,
            found=type_words(Atom(error.args[0])),
            hint="change it in the query itself, or delete the row with `holdfast state edit --delete`",
        ) from error
