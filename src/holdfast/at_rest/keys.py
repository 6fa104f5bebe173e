"""The parsing of keys typed by users, and the decoding of rows of state into Arrow columns.

An UnsafeRow is a sequence of eight-byte words. Thousands of consecutive rows are therefore read as one array
of words, and a column consists of the words at the same offset in each row. If a value does not fit into a
word, the word contains its offset. Lists, maps and numbers longer than a word are decoded one by one.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from holdfast.at_rest.model import type_text
from holdfast.errors import Corrupt, Invalid
from holdfast.formats.rows.spark_types import Array, Atom, DataType, Decimal, Map, Struct, arrow_type
from holdfast.formats.rows.unsafe_row import RowCodec

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    Words = NDArray[np.int64]

_WORD: Final = 8
_FIXED: Final = {
    "byte": "i1",
    "short": "<i2",
    "integer": "<i4",
    "date": "<i4",
    "months": "<i4",
    "float": "<f4",
    "long": "<i8",
    "timestamp": "<i8",
    "timestamp_ntz": "<i8",
    "micros": "<i8",
    "time": "<i8",
    "double": "<f8",
}
_SHORT_DECIMAL: Final = 18


class ColumnDecoder:
    """A decoder of rows of one type into columns.

    Args:
        type_: The type of the rows.
        where: The state, for messages.
    """

    def __init__(self, type_: Struct, where: str) -> None:
        self._type = type_
        self._where = where

    def take_apart(self, rows: Sequence[bytes]) -> list[pa.Array]:
        """Return the columns of rows, in the order of the fields.

        Cost: about 50 nanoseconds per row and field.

        Raises:
            Corrupt: The bytes are not rows of this type.
        """
        import numpy as np

        return self._columns(b"".join(rows), np.fromiter(map(len, rows), np.int64, len(rows)))

    def take_apart_behind(self, stored: Sequence[bytes], before: int) -> list[pa.Array] | None:
        """Return the columns of rows of equal length that are stored with a prefix of the same length.

        Args:
            stored: The rows with their prefixes. The last byte of a prefix is zero; in a prefix of at least
                five bytes, the four bytes before it are the length of the row.
            before: The length of the prefix in bytes.

        Returns:
            The columns; None if the lengths differ or a prefix has a different form.
        """
        import numpy as np

        if not stored or len(set(map(len, stored))) != 1:
            return None
        length = len(stored[0])
        if length <= before:
            return None
        table = np.frombuffer(b"".join(stored), np.uint8).reshape(len(stored), length)
        if before and table[:, before - 1].any():
            return None
        if before > _WORD:
            follows = np.ascontiguousarray(table[:, before - 5 : before - 1]).view("<u4")
            if (follows != length - before + 1).any():
                return None
        rows = np.ascontiguousarray(table[:, before:])
        return self._columns(rows.tobytes(), np.full(len(stored), length - before, np.int64))

    def _columns(self, data: bytes, sizes: Words) -> list[pa.Array]:
        import numpy as np

        least = (len(self._type.types) + 63) // 64 * _WORD + _WORD * len(self._type.types)
        if len(sizes) and (int(sizes.min()) < least or (sizes % _WORD).any()):
            raise damaged_row(self._where, f"a row of {int(sizes.min())} bytes")
        starts = np.zeros(len(sizes), np.int64)
        np.cumsum(sizes[:-1], out=starts[1:])
        rows = _Rows(data, self._where)
        return [
            rows.column(type_, starts, starts + sizes, index, len(self._type.types))
            for index, type_ in enumerate(self._type.types)
        ]


class _Rows:
    """A buffer of many consecutive rows."""

    def __init__(self, data: bytes, where: str) -> None:
        import numpy as np

        self._data = data
        self._bytes = np.frombuffer(data, np.uint8)
        self._words = np.frombuffer(data, "<i8")
        self._where = where

    def column(self, type_: DataType, starts: Words, ends: Words, index: int, count: int) -> pa.Array:
        """Return one field of rows with these start and end offsets and this number of fields."""
        import pyarrow as pa

        if type_ == Atom("void"):
            return pa.nulls(len(starts))
        first = starts // _WORD
        null = (self._words[first + (index >> 6)] >> (index & 63) & 1).astype(bool)
        slots = self._words[first + (count + 63) // 64 + index]
        fixed = self._fixed(type_, slots, null)
        if fixed is not None:
            return fixed
        begin = starts + (slots >> 32)
        sizes = slots & 0xFFFFFFFF
        begin[null], sizes[null] = starts[null], 0
        if ((begin < starts) | (begin + sizes > ends)).any():
            raise damaged_row(self._where, f"a field {index} outside of it")
        if isinstance(type_, Struct):
            return self._struct(type_, begin, begin + sizes, null)
        if type_ in (Atom("string"), Atom("binary")):
            return self._texts(type_, begin, sizes, null)
        return self._one_by_one(type_, begin, sizes, null)

    def _fixed(self, type_: DataType, slots: Words, null: NDArray[np.bool_]) -> pa.Array | None:
        import numpy as np
        import pyarrow as pa

        if isinstance(type_, Decimal):
            if type_.precision > _SHORT_DECIMAL:
                return None
            wide = np.empty((len(slots), 2), np.int64)
            wide[:, 0], wide[:, 1] = slots, slots >> 63
            return _build_array(arrow_type(type_), wide, null)
        if not isinstance(type_, Atom):
            return None
        if type_.name == "boolean":
            return pa.array((slots & 0xFF).astype(bool), mask=null)
        form = _FIXED.get(type_.name)
        if form is None:
            return None
        values = np.ascontiguousarray(slots).view(form)[:: _WORD // np.dtype(form).itemsize]
        return _build_array(arrow_type(type_), np.ascontiguousarray(values), null)

    def _struct(self, type_: Struct, begin: Words, ends: Words, null: NDArray[np.bool_]) -> pa.Array:
        import pyarrow as pa

        # A null value has no words of its own; the words that are read belong to its row and are masked.
        least = (len(type_.types) + 63) // 64 * _WORD + _WORD * len(type_.types)
        if ((ends - begin < least) & ~null).any():
            raise damaged_row(self._where, "a struct that is cut off")
        if null.any():
            return self._one_by_one(type_, begin, ends - begin, null)
        fields = [
            self.column(part, begin, ends, index, len(type_.types)) for index, part in enumerate(type_.types)
        ]
        return pa.StructArray.from_arrays(fields, fields=list(arrow_type(type_)))

    def _texts(self, type_: DataType, begin: Words, sizes: Words, null: NDArray[np.bool_]) -> pa.Array:
        import numpy as np
        import pyarrow as pa

        offsets = np.zeros(len(sizes) + 1, np.int32)
        np.cumsum(sizes, out=offsets[1:])
        places = np.repeat(begin - offsets[:-1], sizes)
        places += np.arange(len(places))
        buffers = [_validity(null), pa.py_buffer(offsets), pa.py_buffer(self._bytes[places])]
        if type_ == Atom("binary"):
            return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)
        made = pa.Array.from_buffers(pa.string(), len(sizes), buffers)
        try:
            made.validate(full=True)
        except pa.ArrowInvalid:
            # Spark does not validate text; invalid UTF-8 is replaced by a mark.
            raw = pa.Array.from_buffers(pa.binary(), len(sizes), buffers).to_pylist()
            made = pa.array(
                [None if text is None else text.decode("utf-8", "replace") for text in raw], pa.string()
            )
        return made

    def _one_by_one(self, type_: DataType, begin: Words, sizes: Words, null: NDArray[np.bool_]) -> pa.Array:
        """Read fields without a fixed width as rows of one field."""
        import pyarrow as pa

        codec = RowCodec(Struct(("v",), (type_,)))
        head = (0).to_bytes(_WORD, "little")
        values: list[Any] = []
        for at, size, gone in zip(begin.tolist(), sizes.tolist(), null.tolist(), strict=True):
            if gone:
                values.append(None)
                continue
            room = -(-size // _WORD) * _WORD
            part = self._data[at : at + size].ljust(room, b"\0")
            row = head + (2 * _WORD << 32 | size).to_bytes(_WORD, "little") + part
            values.append(arrow_value(codec.decode(row, self._where)["v"], type_))
        return pa.array(values, arrow_type(type_))


def arrow_value(value: Any, type_: DataType) -> Any:
    """Convert a value for Arrow: maps to pairs, intervals to named parts."""
    if value is None:
        return None
    if isinstance(type_, Struct):
        return {
            name: arrow_value(value[name], part) for name, part in zip(type_.names, type_.types, strict=True)
        }
    if isinstance(type_, Array):
        return [arrow_value(element, type_.element) for element in value]
    if isinstance(type_, Map):
        pairs = value.items() if isinstance(value, dict) else value
        return [(arrow_value(key, type_.key), arrow_value(element, type_.value)) for key, element in pairs]
    if type_ == Atom("calendar"):
        return dict(zip(("months", "days", "microseconds"), value, strict=True))
    return readable(value)


def damaged_row(where: str, found: str) -> Corrupt:
    """Return the error for a row that does not match the type of its state."""
    return Corrupt(
        "a row of state cannot be decoded",
        code="HF-E6001",
        where=where,
        found=found,
        hint="list all damage with `holdfast checkpoint verify CHECKPOINT`, and restore a savepoint",
    )


def readable(value: Any) -> Any:
    """Return a value with bytes that are not UTF-8 replaced in text."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return value


def _build_array(type_: pa.DataType, values: Any, null: NDArray[np.bool_]) -> pa.Array:
    import pyarrow as pa

    return pa.Array.from_buffers(type_, len(null), [_validity(null), pa.py_buffer(values)])


def _validity(null: NDArray[np.bool_]) -> pa.Buffer | None:
    """Return Arrow's validity bits; None if no value is null."""
    import numpy as np
    import pyarrow as pa

    if not null.any():
        return None
    return pa.py_buffer(np.packbits(~null, bitorder="little"))


_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64, "months": 32, "time": 64}
_FLOATS: Final = ("float", "double")
_TRUTH: Final = {"true": True, "false": False}
_UTC: Final = dt.timezone.utc
_EXACT: Final = decimal.Context(prec=80)


# A function that returns a key of the state as a user types it.
Sample = Callable[[], "str | None"]


class _Unfit(ValueError):
    """The error for a value of the wrong type, with the value found and the expected form."""

    def __init__(self, found: str, expected: str) -> None:
        super().__init__(found)
        self.found = found
        self.expected = expected


def no_sample() -> str | None:
    """Return None, as the default sample of a key."""
    return None


def typed_key(
    given: Any, columns: Struct, where: str, *, written: bool = False, sample: Sample = no_sample
) -> dict[str, Any]:
    """Return the values of a key given in Python or as JSON.

    Args:
        given: A dictionary by column, a list or tuple in the order of the columns, or the value of the only
            column.
        columns: The columns of the key, with their types.
        where: The state, for messages.
        written: Whether a value of any type may be given as text, as on a command line.
        sample: The function that returns a key of the state as text, for messages.

    Raises:
        Invalid: The key does not match its columns; the message lists them.
    """
    if isinstance(given, Mapping):
        values = dict(given)
    elif isinstance(given, (list, tuple)) and len(given) == len(columns.names) and not _one_list(columns):
        values = dict(zip(columns.names, given, strict=True))
    elif len(columns.names) == 1:
        values = {columns.names[0]: given}
    else:
        raise refused("the value is not a valid key of the state", where, repr(given), columns, sample)
    if set(values) != set(columns.names):
        missing = [name for name in columns.names if name not in values]
        extra = [str(name) for name in values if name not in columns.names]
        fact = (
            f"missing key columns: {', '.join(missing)}"
            if missing
            else f"unknown key columns: {', '.join(extra)}"
        )
        raise refused(fact, where, ", ".join(map(str, values)) or "no column", columns, sample)
    name = ""
    try:
        columns_of_key = {}
        for name, type_ in zip(columns.names, columns.types, strict=True):
            columns_of_key[name] = typed(values[name], type_, written=written)
    except _Unfit as unfit:
        raise Invalid(
            f"invalid value for the key column {name!r}",
            code="HF-E2024",
            where=where,
            found=unfit.found,
            expected=unfit.expected,
            hint=key_hint(columns, sample),
        ) from unfit
    return columns_of_key


def _one_list(columns: Struct) -> bool:
    """Return whether a list is the value of the only column, and not the values of several columns."""
    return len(columns.types) == 1 and isinstance(columns.types[0], (Array, Struct))


def key_hint(columns: Struct, sample: Sample) -> str:
    """Return an example of a state's key, an existing one if possible."""
    names = columns.names
    if not names:
        return "omit the key: the state has a single row"
    text = sample()
    if text is not None:
        return f"give a key such as {shlex.quote(text)}"
    example = f"{names[0]}=…" if len(names) == 1 else "{" + ", ".join(f'"{name}": …' for name in names) + "}"
    return f"write the key as {example}"


def refused(fact: str, where: str, given: str, columns: Struct, sample: Sample) -> Invalid:
    """Return the error for a key that does not match its columns."""
    return Invalid(
        fact,
        code="HF-E2025",
        where=where,
        found=given[:200],
        expected=key_text(columns),
        hint=key_hint(columns, sample),
    )


def key_text(columns: Struct) -> str:
    """Return the columns of a key, for display."""
    named = [f"{name} {type_text(type_)}" for name, type_ in zip(columns.names, columns.types, strict=True)]
    return ", ".join(named) or "no key: the state has a single row"


def typed(value: Any, type_: DataType, *, written: bool = False) -> Any:
    """Convert JSON or a user's text to a value as rows of state contain it.

    Raises:
        ValueError: The value does not have the type.
    """
    if value is None:
        return None
    if isinstance(type_, Decimal):
        return _decimal(value, type_)
    if isinstance(type_, Struct):
        return _struct(value, type_, written)
    if isinstance(type_, Array):
        if not isinstance(value, (list, tuple)):
            raise _Unfit(repr(value), "a list")
        return [typed(element, type_.element, written=written) for element in value]
    if isinstance(type_, Map):
        pairs = value.items() if isinstance(value, Mapping) else value
        return {typed(key, type_.key, written=True): typed(element, type_.value) for key, element in pairs}
    return _atom(value, type_.name, written)


def _atom(value: Any, name: str, written: bool) -> Any:
    if name in ("string", "boolean"):
        return _text(value) if name == "string" else _truth(value, written)
    if name in _BITS:
        return _whole(value, name, written)
    if name in _FLOATS:
        return _real(value, written)
    return _bytes(value) if name == "binary" else _of_time(value, name, written)


def _of_time(value: Any, name: str, written: bool) -> Any:
    if name in ("date", "timestamp", "timestamp_ntz"):
        return _time(value, name)
    if name == "micros":
        return value if isinstance(value, dt.timedelta) else dt.timedelta(seconds=_real(value, written))
    if name == "calendar" and isinstance(value, (list, tuple)) and len(value) == 3:
        return tuple(_whole(number, "long", written) for number in value)
    raise _Unfit(repr(value), "null" if name == "void" else name)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _Unfit(repr(value), "text, in quotes if it is JSON")
    return value


def _truth(value: Any, written: bool) -> bool:
    truth = _TRUTH.get(value.lower()) if isinstance(value, str) and written else value
    if not isinstance(truth, bool):
        raise _Unfit(repr(value), "true or false")
    return truth


def _whole(value: Any, name: str, written: bool) -> int:
    if isinstance(value, str) and written:
        try:
            value = int(value)
        except ValueError:
            raise _Unfit(repr(value), f"a whole number ({name})") from None
    if isinstance(value, bool) or not isinstance(value, int):
        raise _Unfit(repr(value), f"a whole number ({name})")
    bound = 1 << (_BITS[name] - 1)
    if not -bound <= value < bound:
        raise _Unfit(str(value), f"{name}: {-bound} to {bound - 1}")
    return value


def _real(value: Any, written: bool) -> float:
    # JSON has no infinity and NaN; as text they have the form that `plain` writes.
    if isinstance(value, str) and (written or value.lower() in ("nan", "inf", "-inf")):
        try:
            value = float(value)
        except ValueError:
            raise _Unfit(repr(value), "a number") from None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _Unfit(repr(value), "a number")
    # Both zeros are the same key, as are all NaNs, because Spark groups them.
    number = float(value)
    return math.nan if math.isnan(number) else number + 0.0


def _bytes(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if isinstance(value, str) and value[:2].lower() == "0x":
        try:
            return bytes.fromhex(value[2:])
        except ValueError:
            pass
    raise _Unfit(repr(value), "bytes as hexadecimal text, such as 0x00ff")


def _time(value: Any, name: str) -> Any:
    expected = {
        "date": "a date, such as 2026-03-05",
        "timestamp": "a time, such as 2026-03-05T08:00:00Z",
        "timestamp_ntz": "a time without a zone, such as 2026-03-05T08:00:00",
    }[name]
    if isinstance(value, str):
        try:
            if name == "date":
                return dt.date.fromisoformat(value)
            # Python before 3.11 does not know the letter for UTC.
            value = dt.datetime.fromisoformat(value[:-1] + "+00:00" if value.endswith("Z") else value)
        except ValueError:
            raise _Unfit(repr(value), expected) from None
    if name == "date" and isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return value  # outside Python's calendar: days or microseconds since 1970
    if name != "date" and isinstance(value, dt.datetime):
        if name == "timestamp":
            return value.astimezone(_UTC) if value.tzinfo else value.replace(tzinfo=_UTC)
        if value.tzinfo is None:
            return value
    raise _Unfit(repr(value), expected)


def _decimal(value: Any, type_: Decimal) -> decimal.Decimal:
    expected = f"decimal({type_.precision},{type_.scale})"
    if isinstance(value, bool) or not isinstance(value, (int, str, float, decimal.Decimal)):
        raise _Unfit(repr(value), expected)
    try:
        # A JSON float is used exactly as written.
        exact = decimal.Decimal(repr(value) if isinstance(value, float) else value)
        scaled = exact.scaleb(type_.scale, _EXACT)
        if scaled != scaled.to_integral_value() or abs(scaled) >= 10**type_.precision:
            raise _Unfit(str(value), expected)
    except decimal.DecimalException:
        raise _Unfit(repr(value), expected) from None
    return exact.quantize(decimal.Decimal(1).scaleb(-type_.scale), context=_EXACT)


def _struct(value: Any, type_: Struct, written: bool) -> dict[str, Any]:
    if isinstance(value, (list, tuple)) and len(value) == len(type_.names):
        value = dict(zip(type_.names, value, strict=True))
    if not isinstance(value, Mapping) or set(value) != set(type_.names):
        raise _Unfit(repr(value), f"an object with {', '.join(type_.names)}")
    return {
        name: typed(value[name], part, written=written)
        for name, part in zip(type_.names, type_.types, strict=True)
    }
