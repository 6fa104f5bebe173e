"""The conversion between Spark's UnsafeRow, the format of rows of state, and Python values.

A row has null bits, eight bytes for each field, and then the values that do not fit into eight bytes, each at
a multiple of eight. Lists and maps inside a row have a similar format. Numbers are little-endian, as on all
machines that Spark supports.
"""

from __future__ import annotations

import decimal
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from typing import Any, Final

from holdfast.errors import Invalid
from holdfast.formats.rows.spark_types import Array, Atom, DataType, Decimal, Map, Struct
from holdfast.formats.text import damaged

_WHAT = "a row of state"
_SEE_TYPES: Final = "list the types of keys and values with `holdfast state list CHECKPOINT`"
_LONG: Final = struct.Struct("<q")
_SIZE: Final = 0xFFFFFFFF
_FORMATS: Final = {
    "boolean": "<?",
    "byte": "<b",
    "short": "<h",
    "integer": "<i",
    "date": "<i",
    "months": "<i",
    "long": "<q",
    "timestamp": "<q",
    "timestamp_ntz": "<q",
    "micros": "<q",
    "time": "<q",
    "float": "<f",
    "double": "<d",
}
_MOST_DIGITS_OF_A_LONG: Final = 18
_CALENDAR: Final = struct.Struct("<iiq")
_RESERVED: Final = 16
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_NAIVE_EPOCH: Final = datetime(1970, 1, 1)
_LAST_DAY: Final = date.max.toordinal()
_FIRST_MICRO: Final = (datetime.min - _NAIVE_EPOCH) // timedelta(microseconds=1)
_LAST_MICRO: Final = (datetime.max - _NAIVE_EPOCH) // timedelta(microseconds=1)
# More digits than any Spark decimal has, so that no value is rounded.
_EXACT: Final = decimal.Context(prec=80)

# Both take the bytes and the offset of a slot; a reader also takes the base of offsets.
_Reader = Callable[[bytes, int, int], Any]


class RowCodec:
    """A reader and writer of rows of one type.

    Values are Python values: numbers, `str`, `bytes`, `bool`, `decimal.Decimal`, `date`, `datetime` (in UTC
    for timestamps, without a time zone for timestamp_ntz), `timedelta` for day-time intervals, a number of
    months for year-month intervals, `(months, days, microseconds)` for the old combined interval, nanoseconds
    for a time of day, `dict` for structs, `list` for arrays, and `dict` for maps, or a list of pairs if the
    keys cannot be keys of a `dict`. A date or timestamp outside the years 1 to 9999 is the number of days or
    microseconds since 1970.

    Args:
        type_: The type of the rows.
    """

    def __init__(self, type_: Struct) -> None:
        self.type = type_
        self._width = _bits(len(type_.types))
        self._readers = [_reader(field) for field in type_.types]
        self._least = self._width + 8 * len(type_.types)

    def decode(self, data: bytes, where: str = "") -> dict[str, Any]:
        """Return the values of a row, by field name; takes about a microsecond per field.

        Args:
            data: The bytes of the row.
            where: The source of the row, for error messages.

        Raises:
            Corrupt: The bytes are not a valid row of this type.
        """
        if len(data) < self._least or len(data) % 8:
            raise damaged(
                _WHAT, where, f"{len(data)} bytes", f"{self._least} or more bytes, in multiples of 8"
            )
        try:
            return self._at(data, 0)
        except (struct.error, ValueError, IndexError, OverflowError, decimal.DecimalException) as error:
            raise damaged(_WHAT, where, str(error), "a row of its schema") from error

    def encode(self, values: Mapping[str, Any]) -> bytes:
        """Return the bytes of a row, in the format that Spark writes.

        Args:
            values: A value or None for each field, by name.

        Raises:
            Invalid: A field is missing, or a value does not match its type.
        """
        try:
            return _struct_bytes(self.type, values)
        except (struct.error, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            found = f"{values!r}: {error}"
            raise Invalid(
                "the values of a row do not match the schema of the state",
                code="HF-E2207",
                found=found[:200],
                expected=", ".join(self.type.names),
                hint=_SEE_TYPES,
            ) from error

    def _at(self, data: bytes, base: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        at = base + self._width
        for index, (name, read) in enumerate(zip(self.type.names, self._readers, strict=True)):
            null = data[base + (index >> 3)] >> (index & 7) & 1
            found[name] = None if null else read(data, base, at)
            at += 8
        return found


def _bits(count: int) -> int:
    """Return the size in bytes of the null bits for this number of fields."""
    return (count + 63) // 64 * 8


def _reader(type_: DataType) -> _Reader:
    fixed = _format(type_)
    if fixed is not None:
        unpack = struct.Struct(fixed).unpack_from
        convert = _converter(type_)
        if convert is None:
            return lambda data, _, at: unpack(data, at)[0]
        return lambda data, _, at: convert(unpack(data, at)[0])
    if type_ == Atom("void"):
        return lambda *_: None
    inner = _part_reader(type_)

    def read(data: bytes, base: int, at: int) -> Any:
        place = _LONG.unpack_from(data, at)[0]
        start, size = base + (place >> 32), place & _SIZE
        if start < base or start + size > len(data):
            raise ValueError(f"{size} bytes at {start} of {len(data)}")
        return inner(data, start, size)

    return read


def _format(type_: DataType) -> str | None:
    """Return the format of a value that fits into a slot, or None if it is stored after the slots."""
    if isinstance(type_, Decimal):
        return "<q" if type_.precision <= _MOST_DIGITS_OF_A_LONG else None
    return _FORMATS.get(type_.name) if isinstance(type_, Atom) else None


def is_fixed(type_: DataType) -> bool:
    """Return whether values of a type are stored in the slot of their field."""
    return _format(type_) is not None


def _converter(type_: DataType) -> Callable[[Any], Any] | None:
    if isinstance(type_, Decimal):
        scale = type_.scale
        return lambda unscaled: decimal.Decimal(unscaled).scaleb(-scale, _EXACT)
    if not isinstance(type_, Atom):
        return None
    known: dict[str, Callable[[Any], Any]] = {
        "date": _date,
        "timestamp": lambda micros: _moment(micros, _EPOCH),
        "timestamp_ntz": lambda micros: _moment(micros, _NAIVE_EPOCH),
        "micros": lambda micros: timedelta(microseconds=micros),
    }
    return known.get(type_.name)


def _date(days: int) -> date | int:
    ordinal = days + _EPOCH_DAY
    return date.fromordinal(ordinal) if 1 <= ordinal <= _LAST_DAY else days


def _moment(micros: int, epoch: datetime) -> datetime | int:
    return epoch + timedelta(microseconds=micros) if _FIRST_MICRO <= micros <= _LAST_MICRO else micros


def _part_reader(type_: DataType) -> Callable[[bytes, int, int], Any]:
    """Return a function that reads a value after the slots, given the bytes, its start and its size."""
    if isinstance(type_, Decimal):
        return lambda data, start, size: decimal.Decimal(
            int.from_bytes(data[start : start + size], "big", signed=True)
        ).scaleb(-type_.scale, _EXACT)
    if isinstance(type_, Struct):
        codec = RowCodec(type_)
        return lambda data, start, _: codec._at(data, start)
    if isinstance(type_, Array):
        elements = _array_reader(type_.element)
        return lambda data, start, _: elements(data, start)
    return _map_reader(type_) if isinstance(type_, Map) else _atom_reader(type_.name)


def _atom_reader(name: str) -> Callable[[bytes, int, int], Any]:
    if name == "string":
        # Spark does not validate strings; invalid UTF-8 must be written back unchanged.
        return lambda data, start, size: data[start : start + size].decode("utf-8", "surrogateescape")
    if name == "calendar":
        return lambda data, start, _: _CALENDAR.unpack_from(data, start)
    return lambda data, start, size: bytes(data[start : start + size])


def _array_reader(element: DataType) -> Callable[[bytes, int], list[Any]]:
    read, width = _reader(element), _width(element)

    def elements(data: bytes, start: int) -> list[Any]:
        (count,) = _LONG.unpack_from(data, start)
        at = start + 8 + _bits(count)
        if count < 0 or at + count * width > len(data):
            raise ValueError(f"a list of {count} at {start} of {len(data)}")
        bits = start + 8
        return [
            None if data[bits + (index >> 3)] >> (index & 7) & 1 else read(data, start, at + index * width)
            for index in range(count)
        ]

    return elements


def _map_reader(type_: Map) -> Callable[[bytes, int, int], Any]:
    keys, values = _array_reader(type_.key), _array_reader(type_.value)
    plain = isinstance(type_.key, (Atom, Decimal))

    def read(data: bytes, start: int, size: int) -> Any:
        (keys_size,) = _LONG.unpack_from(data, start)
        if not 0 <= keys_size <= size - 8:
            raise ValueError(f"keys of {keys_size} bytes in a map of {size}")
        pairs = zip(keys(data, start + 8), values(data, start + 8 + keys_size), strict=True)
        return dict(pairs) if plain else list(pairs)

    return read


def _width(type_: DataType) -> int:
    """Return the size in bytes of a list element."""
    fixed = _format(type_)
    if fixed is not None:
        return struct.calcsize(fixed)
    return 1 if type_ == Atom("void") else 8


# Writing


def _struct_bytes(type_: Struct, values: Mapping[str, Any]) -> bytes:
    count = len(type_.types)
    head = bytearray(_bits(count) + 8 * count)
    given = [values[name] for name in type_.names]
    return _filled(head, 0, _bits(count), 8, type_.types, given)


def _array_bytes(element: DataType, values: Sequence[Any]) -> bytes:
    width = _width(element)
    begin = 8 + _bits(len(values))
    head = bytearray(begin + (width * len(values) + 7) // 8 * 8)
    _LONG.pack_into(head, 0, len(values))
    return _filled(head, 8, begin, width, [element] * len(values), values)


def _map_bytes(type_: Map, value: Any) -> bytes:
    pairs = list(value.items()) if isinstance(value, Mapping) else list(value)
    keys = _array_bytes(type_.key, [key for key, _ in pairs])
    return _LONG.pack(len(keys)) + keys + _array_bytes(type_.value, [item for _, item in pairs])


def _filled(
    head: bytearray, bits: int, begin: int, width: int, types: Sequence[DataType], values: Iterable[Any]
) -> bytes:
    """Write values into the slots of a header, and the values that do not fit after it."""
    behind = bytearray()
    for index, (type_, value) in enumerate(zip(types, values, strict=True)):
        at = begin + index * width
        if value is None:
            head[bits + (index >> 3)] |= 1 << (index & 7)
        fixed = _format(type_)
        if fixed is not None:
            if value is not None:
                struct.pack_into(fixed, head, at, _plain(type_, value))
        elif value is not None or _reserves(type_):
            part = b"" if value is None else _part_bytes(type_, value)
            size = len(part)
            if value is None and type_ == Atom("calendar"):
                size = _RESERVED
            struct.pack_into("<Q", head, at, (len(head) + len(behind)) << 32 | size)
            room = _RESERVED if _reserves(type_) else (size + 7) // 8 * 8
            behind += part.ljust(room, b"\0")
    return bytes(head + behind)


def _reserves(type_: DataType) -> bool:
    """Return whether Spark reserves space for a null value, so that it can be changed in place."""
    return isinstance(type_, Decimal) or type_ == Atom("calendar")


def _plain(type_: DataType, value: Any) -> Any:
    if isinstance(type_, Decimal):
        return _unscaled(type_, value)
    name = type_.name if isinstance(type_, Atom) else ""
    if name == "date" and isinstance(value, date):
        return value.toordinal() - _EPOCH_DAY
    if name in ("timestamp", "timestamp_ntz") and isinstance(value, datetime):
        epoch = _EPOCH if name == "timestamp" else _NAIVE_EPOCH
        return (value - epoch) // timedelta(microseconds=1)
    if name == "micros" and isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    return value


def _unscaled(type_: Decimal, value: Any) -> int:
    exact = decimal.Decimal(value).scaleb(type_.scale, _EXACT)
    unscaled = int(exact)
    if unscaled != exact or abs(unscaled) >= 10**type_.precision:
        raise ValueError(f"{value} does not fit decimal({type_.precision},{type_.scale})")
    return unscaled


def _part_bytes(type_: DataType, value: Any) -> bytes:
    if isinstance(type_, Decimal):
        unscaled = _unscaled(type_, value)
        # As Java's BigInteger: the minimum number of bytes for the number and its sign.
        bits = (unscaled if unscaled >= 0 else ~unscaled).bit_length()
        return unscaled.to_bytes(bits // 8 + 1, "big", signed=True)
    if isinstance(type_, Struct):
        return _struct_bytes(type_, value)
    if isinstance(type_, Array):
        return _array_bytes(type_.element, value)
    return _map_bytes(type_, value) if isinstance(type_, Map) else _atom_bytes(type_.name, value)


def _atom_bytes(name: str, value: Any) -> bytes:
    if name == "string":
        return bytes(value.encode("utf-8", "surrogateescape"))
    return _CALENDAR.pack(*value) if name == "calendar" else bytes(value)
