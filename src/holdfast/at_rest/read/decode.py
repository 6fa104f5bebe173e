"""Rows of state as columns of Arrow, taken apart many at a time.

An UnsafeRow is a sequence of words of eight bytes, so some thousand rows behind each other are one array
of words, and a column is every row's word at the same place. What does not fit into a word is gathered from
where the word says it is. Lists, maps and numbers that are longer than a word are taken apart one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import Corrupt
from holdfast.formats.rows.arrow_types import arrow_type
from holdfast.formats.rows.spark_types import Array, Atom, DataType, Decimal, Map, Struct
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


class Columns:
    """Takes rows of one type apart into columns.

    Args:
        type_: The rows' type.
        where: What they belong to, for messages.
    """

    def __init__(self, type_: Struct, where: str) -> None:
        self._type = type_
        self._where = where

    def take_apart(self, rows: Sequence[bytes]) -> list[pa.Array]:
        """The columns of rows, in the order of the fields.

        Cost: some 50 nanoseconds a row and field.

        Raises:
            Corrupt: The rows cannot be of this type.
        """
        import numpy as np

        return self._columns(b"".join(rows), np.fromiter(map(len, rows), np.int64, len(rows)))

    def take_apart_behind(self, stored: Sequence[bytes], before: int) -> list[pa.Array] | None:
        """The same of rows that all have so many bytes before them, where all are of one length.

        Args:
            stored: The rows with what is before them: a byte that is zero last, and with five bytes and more
                the length of what follows as the four before that.
            before: How many bytes.

        Returns:
            None where they are not of one length, or something else is before one of them.
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
    """Many rows behind each other."""

    def __init__(self, data: bytes, where: str) -> None:
        import numpy as np

        self._data = data
        self._bytes = np.frombuffer(data, np.uint8)
        self._words = np.frombuffer(data, "<i8")
        self._where = where

    def column(self, type_: DataType, starts: Words, ends: Words, index: int, count: int) -> pa.Array:
        """One field of rows that begin and end at these places and have so many fields."""
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
            return _made(arrow_type(type_), wide, null)
        if not isinstance(type_, Atom):
            return None
        if type_.name == "boolean":
            return pa.array((slots & 0xFF).astype(bool), mask=null)
        form = _FIXED.get(type_.name)
        if form is None:
            return None
        values = np.ascontiguousarray(slots).view(form)[:: _WORD // np.dtype(form).itemsize]
        return _made(arrow_type(type_), np.ascontiguousarray(values), null)

    def _struct(self, type_: Struct, begin: Words, ends: Words, null: NDArray[np.bool_]) -> pa.Array:
        import pyarrow as pa

        # A null one has no words of its own; those of its row stand in, and are not shown.
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
            # Spark does not check text; what is no UTF-8 is shown with a mark in its place.
            raw = pa.Array.from_buffers(pa.binary(), len(sizes), buffers).to_pylist()
            made = pa.array(
                [None if text is None else text.decode("utf-8", "replace") for text in raw], pa.string()
            )
        return made

    def _one_by_one(self, type_: DataType, begin: Words, sizes: Words, null: NDArray[np.bool_]) -> pa.Array:
        """What has no place of a fixed width, read as rows of one field."""
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
    """A value as Arrow takes it: pairs for maps, names for the parts of an interval."""
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
    """The error for a row that cannot be of its state's type."""
    return Corrupt(
        "a row of state is damaged",
        where=where,
        found=found,
        hint="see what else is damaged with `holdfast checkpoint verify`, and restore a savepoint",
    )


def readable(value: Any) -> Any:
    """A value as it is; text that is no UTF-8 with marks where it is not."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return value


def _made(type_: pa.DataType, values: Any, null: NDArray[np.bool_]) -> pa.Array:
    import pyarrow as pa

    return pa.Array.from_buffers(type_, len(null), [_validity(null), pa.py_buffer(values)])


def _validity(null: NDArray[np.bool_]) -> pa.Buffer | None:
    """Arrow's bits for what is there; none where all is."""
    import numpy as np
    import pyarrow as pa

    if not null.any():
        return None
    return pa.py_buffer(np.packbits(~null, bitorder="little"))
