"""Rows of an operator's state, taken apart and put together again as the new code has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from holdfast.at_rest.evolve.column_changes import FieldSource, RowChange
from holdfast.checkpoints.state.families import Pairs
from holdfast.checkpoints.state.states import StateCodec
from holdfast.errors import Corrupt, Unsupported
from holdfast.formats.rows.unsafe_row import RowCodec

_Values = dict[str, Any]


class RowConversion:
    """Brings rows of one operator into their new form.

    Cost: about a microsecond a column, and as much again for each column of the new row.

    Args:
        change: What becomes of its columns.
        codec: Takes the saved rows apart.
    """

    def __init__(self, change: RowChange, codec: StateCodec) -> None:
        self._change = change
        self._codec = codec
        self._keys = RowCodec(change.new.key_type)
        self._values = RowCodec(change.new.value_type)
        self._copied: Final = [
            (column.name, None if place is None else change.new.keys[place].name)
            for column, place in zip(change.new.copied, change.new.copies, strict=True)
        ]

    def rows(self, pairs: Pairs) -> Iterator[tuple[bytes, bytes]]:
        """The new key and value of each row, as UnsafeRows.

        Args:
            pairs: Rows as they are stored.

        Raises:
            Corrupt: A row is damaged.
            Unsupported: A row has a null where the new code has none.
        """
        codec = self._codec
        for stored_key, stored_value in pairs:
            rows, is_list = codec.values.rows(stored_value, codec.where)
            if is_list:
                raise Corrupt(
                    "a row of state is damaged",
                    where=codec.where,
                    found="a list of values",
                    expected="one value for each key",
                    hint="`holdfast checkpoint verify` tells whether files were exchanged",
                )
            key_row = codec.key_row(stored_key)
            if self._change.rows_stay:
                yield key_row, rows[0]
                continue
            old = codec.value_values(rows[0])
            key = self._taken(self._change.keys, codec.key_values(key_row))
            value = self._taken(self._change.values, old)
            yield self._keys.encode(key), self._encoded(key, value, old)

    def merged(self, key_row: bytes, one: bytes, other: bytes) -> bytes:
        """Two rows of the same key put together; only where every column can be."""
        first, second = (self._values.decode(row, self._codec.where) for row in (one, other))
        value = {
            source.column.name: source.merge(first[source.column.name], second[source.column.name])
            for source in self._change.values
            if source.merge is not None
        }
        return self._encoded(self._keys.decode(key_row, self._codec.where), value, {})

    def shown(self, key_row: bytes) -> str:
        """A key in words."""
        values = self._keys.decode(key_row, self._codec.where)
        labels = {column.name: column.label for column in self._change.new.keys}
        return ", ".join(f"{labels[name]} {value!r}" for name, value in values.items()) or "the one key"

    def _encoded(self, key: _Values, value: _Values, old: _Values) -> bytes:
        for name, place in self._copied:
            window = self._change.window
            value[name] = (
                key[place] if place is not None else None if window is None else old.get(window.old or "")
            )
        return self._values.encode(value)

    def _taken(self, sources: Sequence[FieldSource], old: _Values) -> _Values:
        found: _Values = {}
        for source in sources:
            if source.old is None:
                found[source.column.name] = source.initial
                continue
            value = old[source.old]
            if value is not None:
                value = source.convert(value)
            elif not source.column.nullable:
                raise Unsupported(
                    "a row has a null where the new code has none",
                    where=self._codec.where,
                    found=source.column.label,
                    hint="let the new code allow nulls in it, or change these rows with"
                    " `holdfast state edit` first",
                )
            found[source.column.name] = value
        return found
