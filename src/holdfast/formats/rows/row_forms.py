"""The layout of state rows in Spark's stores: marks, checksums, lengths, and keys in two parts.

The memory provider stores a row unchanged. The RocksDB provider puts a byte before each row, and the number
of the column family before a key. Several values of one key, as in lists, follow each other with their
lengths, separated by RocksDB's delimiter if RocksDB has merged them. With row checksums, a checksum is put
before each value, and before the key of a delete.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from google_crc32c import value as crc32c

from holdfast.errors import Unsupported
from holdfast.formats.rows.spark_types import Atom, Struct
from holdfast.formats.rows.unsafe_row import RowCodec
from holdfast.formats.text import damaged, json_object, whole_number

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FAMILY_BYTES: Final = 2
CHECKSUM_BYTES: Final = 4
_WHAT = "a row of state"
_INT: Final = struct.Struct("<i")
_UINT: Final = struct.Struct("<I")
PREFIX_COLUMNS: Final = "numColsPrefixKey"
_ENCODER = "an encoder of keys"
# More fields than any key has; a damaged number must not take memory.
_MOST_FIELDS: Final = 10_000


@dataclass(frozen=True, slots=True)
class ValueForm:
    """The byte layout of a store's values.

    Attributes:
        rocksdb: Whether the RocksDB provider stores the values; otherwise the memory provider does.
        checksums: Whether each value has a checksum before it.
        delimiter: The bytes that RocksDB puts between values that it merges.
        avro: Whether rows are Avro instead of UnsafeRow.
    """

    rocksdb: bool
    checksums: bool = False
    delimiter: bytes = b""
    avro: bool = False

    def deleted(self, key: bytes) -> bytes:
        """Return the key from the record of a delete."""
        return key[CHECKSUM_BYTES:] if self.checksums else key

    def bare_all(self, values: Sequence[bytes]) -> list[bytes]:
        """Return the bytes to hash for each value, without marks and checksums.

        For a single value the result is the row; for a list it is each row after its length.

        Raises:
            ValueError, IndexError, struct.error: The bytes are not a valid value.
        """
        if not self.rocksdb or self.avro:
            return [self._unmarked(value) for value in values]
        joined = self._joined
        if not self.checksums:
            return [value[1:] if value[0] == 0 else joined(value) for value in values]
        whole = int.from_bytes
        return [
            value[9:] if value[8] == 0 and whole(value[4:8], "little") == len(value) - 8 else joined(value)
            for value in values
        ]

    @property
    def before_row(self) -> int | None:
        """Return the number of bytes before the row of a single value, or None if it also has other
        additions.
        """
        if self.avro:
            return None
        return (CHECKSUM_BYTES if self.checksums else 0) + (
            (5 if self.checksums else 1) if self.rocksdb else 0
        )

    def all_single(self, values: Sequence[bytes]) -> bool:
        """Return whether each value is a single one, with `before_row` bytes before its row and none after
        it.

        This is a fast check for values of equal length; False only means that the values must be read one at
        a time.
        """
        if self.before_row is None or not values:
            return False
        size = len(values[0])
        if size < self.before_row or set(map(len, values)) != {size}:
            return False
        if not self.rocksdb:
            return True
        import numpy as np

        data: NDArray[np.uint8] = np.frombuffer(b"".join(values), np.uint8).reshape(-1, size)
        if (data[:, self.before_row - 1] != 0).any():
            return False
        if not self.checksums:
            return True
        lengths = data[:, CHECKSUM_BYTES : CHECKSUM_BYTES + 4].tobytes()
        return lengths == _INT.pack(size - CHECKSUM_BYTES - 4) * len(values)

    def rows(self, value: bytes, where: str) -> tuple[tuple[bytes, ...], bool]:
        """Return the rows of a value, and whether the value is a list.

        Raises:
            Corrupt: The bytes are not a valid value.
        """
        try:
            if not self.rocksdb or self.avro:
                return (self._unmarked(value),), False
            if self.checksums:
                # The length in a single value is that of all following bytes.
                single = value[8] == 0 and int.from_bytes(value[4:8], "little") == len(value) - 8
                return ((value[9:],), False) if single else (tuple(self._checked(value)), True)
            return ((value[1:],), False) if value[0] == 0 else (tuple(self._plain(value)), True)
        except (struct.error, ValueError, IndexError) as error:
            raise damaged(_WHAT, where, f"a value of {len(value)} bytes: {error}") from error

    def stored(self, keys: Sequence[bytes], rows: Sequence[bytes]) -> list[bytes]:
        """Return the stored bytes of single values.

        Args:
            keys: The stored keys, with the number of their column family; a checksum is of key and value.
            rows: The rows, as UnsafeRow, or as Avro if the store uses it.
        """
        if not self.rocksdb:
            if not self.checksums:
                return list(rows)
            return [_UINT.pack(crc) + row for crc, row in zip(_crcs(keys, rows), rows, strict=True)]
        marked = list(rows) if self.avro else [b"\0" + row for row in rows]
        if not self.checksums:
            return marked
        crcs = _crcs(keys, marked)
        return [_UINT.pack(crc) + _INT.pack(len(row)) + row for crc, row in zip(crcs, marked, strict=True)]

    def stored_list(self, key: bytes, rows: Sequence[bytes]) -> bytes:
        """Return the stored bytes of a list, which only the RocksDB provider supports.

        Args:
            key: The stored key, with the number of its column family.
            rows: The elements of the list, at least one, because an empty list is not stored.
        """
        parts = [_INT.pack(len(row) + 1) + b"\0" + row for row in rows]
        if self.checksums:
            crcs = _crcs([key] * len(parts), parts)
            parts = [
                _UINT.pack(crc) + _INT.pack(len(part)) + part for crc, part in zip(crcs, parts, strict=True)
            ]
        return self.delimiter.join(parts)

    def _unmarked(self, value: bytes) -> bytes:
        """Return the row of a value without a mark byte, as stored by the memory provider or in Avro."""
        if not self.checksums:
            return value
        if self.rocksdb:
            return b"".join(self._parts(value))
        if len(value) < CHECKSUM_BYTES:
            raise ValueError("no checksum before the row")
        return value[CHECKSUM_BYTES:]

    def _joined(self, value: bytes) -> bytes:
        rows = self._checked(value) if self.checksums else self._plain(value)
        return b"".join([part for row in rows for part in (_INT.pack(len(row)), row)])

    def _checked(self, value: bytes) -> list[bytes]:
        return [row for part in self._parts(value) for row in self._plain(part)]

    def _parts(self, value: bytes) -> list[bytes]:
        """Return the parts of a value with checksums."""
        parts, at = [], 0
        while at < len(value):
            part = _part(value, at + CHECKSUM_BYTES)
            parts.append(part)
            at = self._behind(value, at + CHECKSUM_BYTES + 4 + len(part))
        return parts

    def _plain(self, value: bytes) -> list[bytes]:
        rows, at = [], 0
        while at < len(value):
            part = _part(value, at)
            if part[0] != 0:
                raise ValueError(f"a row of version {part[0]}")
            rows.append(part[1:])
            at = self._behind(value, at + 4 + len(part))
        return rows

    def _behind(self, value: bytes, at: int) -> int:
        """Return the start of the next value in a list, after the delimiter."""
        if at == len(value) or not self.delimiter:
            return at
        if value[at : at + len(self.delimiter)] != self.delimiter:
            raise ValueError(f"no delimiter at {at}")
        return at + len(self.delimiter)


def _crcs(keys: Sequence[bytes], values: Sequence[bytes]) -> list[int]:
    return [crc32c(key + value) for key, value in zip(keys, values, strict=True)]


def _part(value: bytes, at: int) -> bytes:
    (size,) = _INT.unpack_from(value, at)
    if size < 1 or at + 4 + size > len(value):
        raise ValueError(f"a value of {size} bytes at {at}")
    return value[at + 4 : at + 4 + size]


class KeyKind(str, Enum):
    """The encoders of keys, with Spark's names."""

    ROW = "NoPrefixKeyStateEncoderSpec"
    PREFIX = "PrefixKeyScanStateEncoderSpec"
    RANGE = "RangeKeyScanStateEncoderSpec"
    TIME_FIRST = "TimestampAsPrefixKeyStateEncoderSpec"
    TIME_LAST = "TimestampAsPostfixKeyStateEncoderSpec"


@dataclass(frozen=True, slots=True)
class KeyForm:
    """The byte layout of a column family's keys.

    Attributes:
        kind: The encoder: keys in one part, or in two parts of which the first can be searched.
        first: The indices of the fields in the first part; empty for keys in one part.
    """

    kind: KeyKind = KeyKind.ROW
    first: tuple[int, ...] = ()


def parse_encoder(text: str, where: str) -> KeyForm:
    """Parse the key encoder in a schema of version 3; an empty text is the encoder for keys in one part.

    Raises:
        Corrupt: The encoder is not in the format that Spark writes.
        Unsupported: The encoder is unknown.
    """
    if not text.strip():
        return KeyForm()
    fields = json_object(text, _ENCODER, where)
    name = fields.get("keyStateEncoderType")
    if name not in {known.value for known in KeyKind}:
        raise Unsupported(
            "unknown key encoder",
            code="HF-E7075",
            where=where,
            found=str(name),
            hint="upgrade Holdfast: a newer Spark wrote this schema",
        )
    kind = KeyKind(name)
    if kind is KeyKind.PREFIX:
        return prefix_form(whole_number(fields, PREFIX_COLUMNS, _ENCODER, where), where)
    if kind is KeyKind.RANGE:
        ordinals = fields.get("orderingOrdinals")
        if not isinstance(ordinals, list) or not all(isinstance(place, int) for place in ordinals):
            raise damaged(_ENCODER, where, f"`orderingOrdinals` is {ordinals!r}", "field positions")
        return KeyForm(kind, tuple(ordinals))
    return KeyForm(kind)


def prefix_form(count: int, where: str) -> KeyForm:
    """Return the layout of keys whose first columns, given by their number, are a prefix.

    Raises:
        Corrupt: No key has this number of columns.
    """
    if not 0 <= count <= _MOST_FIELDS:
        raise damaged(_ENCODER, where, f"`{PREFIX_COLUMNS}` is {count}", "the number of fields")
    return KeyForm(KeyKind.PREFIX, tuple(range(count)))


class KeyCodec:
    """A reader and writer of one family's keys, as stored by the RocksDB provider without the family's
    number.

    Args:
        form: The byte layout of the keys.
        type_: The type of the keys.
        where: The family, for error messages.

    Raises:
        Corrupt: The layout names a field that the keys do not have.
    """

    def __init__(self, form: KeyForm, type_: Struct, where: str) -> None:
        self.form = form
        self.type = type_
        self._where = where
        self._whole = RowCodec(type_)
        first = form.first
        if form.kind in (KeyKind.TIME_FIRST, KeyKind.TIME_LAST):
            first = (len(type_.types) - 1,)
        count = len(type_.types)
        missing = [place for place in first if not 0 <= place < count]
        if missing:
            found = f"field {missing[0]} in the first part of the key"
            raise damaged(_ENCODER, where, found, f"one of the {count} fields of the key")
        self._first = _picked(type_, first)
        self._rest = _picked(type_, [place for place in range(len(type_.types)) if place not in first])
        self._first_codec = RowCodec(self._first)
        self._rest_codec = RowCodec(self._rest)
        ranges = Struct(self._first.names, tuple(Atom("binary") for _ in self._first.types))
        self._range_codec = RowCodec(ranges)

    def row(self, key: bytes) -> bytes:
        """Return a stored key as one UnsafeRow, as the memory provider would store it.

        Raises:
            Corrupt: The bytes are not a valid key.
        """
        if self.form.kind is KeyKind.ROW:
            return _unmarked(key, self._where)
        return self._whole.encode(self.values(key))

    def values(self, key: bytes) -> dict[str, Any]:
        """Return the values of a stored key, by field name.

        Raises:
            Corrupt: The bytes are not a valid key.
        """
        if self.form.kind is KeyKind.ROW:
            return self._whole.decode(_unmarked(key, self._where), self._where)
        found = {**self._parts(key)}
        return {name: found[name] for name in self.type.names}

    def stored(self, row: bytes) -> bytes:
        """Return the stored key for an UnsafeRow; the inverse of `row`.

        Raises:
            Corrupt: The bytes are not a valid key.
        """
        if self.form.kind is KeyKind.ROW:
            return b"\0" + row
        values = self._whole.decode(row, self._where)
        rest = b""
        if self._rest.types:
            rest = b"\0" + self._rest_codec.encode({name: values[name] for name in self._rest.names})
        if self.form.kind in (KeyKind.TIME_FIRST, KeyKind.TIME_LAST):
            time = _time_bytes(row, len(self.type.types) - 1, len(self.type.types))
            return time + rest if self.form.kind is KeyKind.TIME_FIRST else rest + time
        first = {name: values[name] for name in self._first.names}
        if self.form.kind is KeyKind.RANGE:
            head = b"\0" + self._range_codec.encode(self._in_order(first))
        else:
            head = b"\0" + self._first_codec.encode(first)
        return _INT.pack(len(head)) + head + rest

    def _in_order(self, values: Mapping[str, Any]) -> dict[str, bytes]:
        """Return the order-preserving bytes of values; the inverse of `_ordered`."""
        found = {}
        for name, type_ in zip(self._first.names, self._first.types, strict=True):
            atom = type_.name if isinstance(type_, Atom) else ""
            packed = _ORDERED.get(atom)
            if packed is None:
                raise Unsupported(
                    "the key has a column of a type that cannot be sorted",
                    code="HF-E7076",
                    where=self._where,
                    found=f"column {name}",
                    hint="use integers, floating-point numbers or booleans, the types that Spark sorts",
                )
            found[name] = _in_order(values[name], atom, packed)
        return found

    def start(self, values: Mapping[str, Any]) -> bytes | None:
        """Return the prefix of stored keys with these values; the complete key if every field is given.

        Args:
            values: The searchable fields: for a key in two parts those of the first part, without a time at
                its end; otherwise all fields.

        Returns:
            The prefix, or None if keys with this layout do not begin with these fields.

        Raises:
            Invalid: A value does not match the type of its field.
        """
        kind = self.form.kind
        if kind is KeyKind.ROW:
            return b"\0" + self._whole.encode(values)
        if kind is KeyKind.PREFIX:
            first = b"\0" + self._first_codec.encode(values)
            return _INT.pack(len(first)) + first
        return b"\0" + self._rest_codec.encode(values) if kind is KeyKind.TIME_LAST else None

    def _parts(self, key: bytes) -> Mapping[str, Any]:
        where = self._where
        if self.form.kind is KeyKind.TIME_FIRST:
            rest = self._rest_codec.decode(_unmarked(key[8:], where), where)
            return {self._first.names[0]: _time(key[:8], where), **rest}
        if self.form.kind is KeyKind.TIME_LAST:
            rest = self._rest_codec.decode(_unmarked(key[:-8], where), where)
            return {self._first.names[0]: _time(key[-8:], where), **rest}
        try:
            first = _part(key, 0)
        except (struct.error, ValueError) as error:
            raise damaged(_WHAT, where, f"a key of {len(key)} bytes: {error}") from error
        behind = key[4 + len(first) :]
        first = _unmarked(first, where)
        if self.form.kind is KeyKind.RANGE:
            values = self._ordered(self._range_codec.decode(first, where))
        else:
            values = self._first_codec.decode(first, where)
        if self._rest.types:
            values.update(self._rest_codec.decode(_unmarked(behind, where), where))
        return values

    def _ordered(self, parts: Mapping[str, bytes]) -> dict[str, Any]:
        """Return the values for order-preserving bytes."""
        found = {}
        for name, type_ in zip(self._first.names, self._first.types, strict=True):
            atom = type_.name if isinstance(type_, Atom) else ""
            packed = _ORDERED.get(atom)
            data = parts[name]
            if packed is None or len(data) != 1 + packed.size:
                raise damaged(
                    _WHAT, self._where, f"{len(data)} bytes for {name}", "a byte more than its type"
                )
            found[name] = _unordered(data, atom, packed)
        return found


_ORDERED: Final = {
    "boolean": struct.Struct(">?"),
    "byte": struct.Struct(">b"),
    "short": struct.Struct(">h"),
    "integer": struct.Struct(">i"),
    "long": struct.Struct(">q"),
    "float": struct.Struct(">f"),
    "double": struct.Struct(">d"),
}
_NEGATIVE, _POSITIVE, _NULL = 0, 1, 2


def _unordered(data: bytes, atom: str, packed: struct.Struct) -> Any:
    mark, body = data[0], data[1:]
    if mark == _NULL:
        return None
    if mark == _NEGATIVE and atom in ("float", "double"):
        body = bytes(byte ^ 0xFF for byte in body)
    return packed.unpack(body)[0]


def _in_order(value: Any, atom: str, packed: struct.Struct) -> bytes:
    """Return the order-preserving bytes of a number; the inverse of `_unordered`."""
    if value is None:
        return bytes([_NULL]) + bytes(packed.size)
    body = packed.pack(value)
    if not body[0] & 0x80 or atom == "boolean":
        return bytes([_POSITIVE]) + body
    if atom in ("float", "double"):
        body = bytes(byte ^ 0xFF for byte in body)
    return bytes([_NEGATIVE]) + body


def _time_bytes(row: bytes, index: int, width: int) -> bytes:
    """Return the bytes of a time field in a row, with the sign flipped; the inverse of `_time`."""
    at = (width + 63) // 64 * 8 + 8 * index
    return (int.from_bytes(row[at : at + 8], "little", signed=True) + (1 << 63)).to_bytes(8, "big")


def _time(data: bytes, where: str) -> int:
    """Return a timestamp from bytes with a flipped sign, which sort by time."""
    if len(data) != 8:
        raise damaged(_WHAT, where, f"{len(data)} bytes of a key", "8 bytes of a timestamp")
    return int.from_bytes(data, "big") - (1 << 63)


def _unmarked(data: bytes, where: str) -> bytes:
    """Return a row without the mark byte before it."""
    if not data or data[0] != 0:
        raise damaged(_WHAT, where, f"{data[:1]!r} before a key's row", "a zero byte")
    return data[1:]


def _picked(type_: Struct, places: Any) -> Struct:
    chosen = list(places)
    return Struct(tuple(type_.names[at] for at in chosen), tuple(type_.types[at] for at in chosen))
