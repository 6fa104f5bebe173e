"""Rows of a state as an edit looks at them: all in columns, and one by one only those that it changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from holdfast.at_rest.edit.state_columns import KEY, PLACE, VALUE, Column
from holdfast.at_rest.read.decode import Columns as Packed
from holdfast.formats.rows.spark_types import Atom, Decimal, Struct
from holdfast.formats.rows.unsafe_row import RowCodec

if TYPE_CHECKING:
    import pyarrow as pa

Values = Mapping[str, Any]
# What is the same in Arrow whether it comes from columns or from values.
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
    """Some rows by the names of their state's columns."""

    def __len__(self) -> int:
        """How many there are."""

    def __getitem__(self, at: int, /) -> Values:
        """One of them."""

    def __iter__(self) -> Iterator[Values]:
        """All of them."""


def shown(columns: Sequence[Column], key: Values, value: Values, place: int | None = None) -> Values:
    """A row by the names of its state's columns, of the fields of its key and value."""
    return {column.name: place if column.side == PLACE else column.of(key, value) for column in columns}


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows with one value each, as they are stored.

    Attributes:
        columns: The columns of their state.
        key: What takes keys apart.
        value: What takes values apart.
        keys: The keys, as UnsafeRows.
        values: The value of each, likewise.
        where: What they belong to, for messages.
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
        return shown(self.columns, key, value)

    def __iter__(self) -> Iterator[Values]:
        return (self[at] for at in range(len(self)))

    def decoded(self, at: int) -> tuple[Values, Values]:
        """The fields of a row's key and of its value."""
        return self.key.decode(self.keys[at]), self.value.decode(self.values[at])

    def arrays(self, types: Mapping[str, pa.DataType]) -> list[pa.Array] | None:
        """The columns, in their order; None where they have to be made of the rows one by one.

        Raises:
            Corrupt: A row is damaged.
        """
        if not all(_plain(part) for part in self.columns):
            return None
        sides = {
            KEY: _by_name(self.key.type, self.keys, self.where),
            VALUE: _by_name(self.value.type, self.values, self.where),
        }
        arrays = []
        for column in self.columns:
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
    return dict(zip(type_.names, Packed(type_, where).take_apart(rows), strict=True))
