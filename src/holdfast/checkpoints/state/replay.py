"""What the batches since a base have done to it, laid over its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from holdfast.formats.files.records import Change, Record
from holdfast.formats.rows.row_forms import ValueForm

_ABSENT = object()

Row = tuple[bytes, bytes]


def key_of(record: Record, values: ValueForm) -> bytes:
    """The key that a record is about; the record of a delete may have a checksum before it."""
    return values.deleted(record.key) if record.change is Change.DELETE else record.key


@dataclass(slots=True)
class _Appended:
    """Values that RocksDB would merge: behind those of the base, or on their own."""

    parts: list[bytes]
    onto_base: bool


class Overlay:
    """Changes by key, the last of each. Held in memory: as much as has changed since the base.

    Args:
        values: How values are put into bytes.
    """

    def __init__(self, values: ValueForm) -> None:
        self._values = values
        self._entries: dict[bytes, bytes | _Appended | None] = {}

    def add(self, records: Iterable[Record]) -> None:
        """Take in the changes of a batch, in their order."""
        entries = self._entries
        for record in records:
            if record.change is Change.PUT:
                entries[record.key] = record.value
            elif record.change is Change.DELETE:
                entries[self._values.deleted(record.key)] = None
            elif record.value is not None:
                self._append(record.key, record.value)

    def over(self, rows: Iterable[Row]) -> Iterator[Row]:
        """The rows of the base as the changes leave them, and those that are new. Uses the changes up."""
        entries = self._entries
        for row in rows:
            found = self._changed(row) if row[0] in entries else row
            if found is not None:
                yield found
        yield from self._left()

    def over_chunks(self, chunks: Iterable[list[Row]], size: int) -> Iterator[list[Row]]:
        """The same, some rows at a time, in their lists: quick where few of them have changed."""
        entries = self._entries
        for chunk in chunks:
            gone = []
            for at in [at for at, row in enumerate(chunk) if row[0] in entries]:
                found = self._changed(chunk[at])
                if found is None:
                    gone.append(at)
                else:
                    chunk[at] = found
            for at in reversed(gone):
                del chunk[at]
            if chunk:
                yield chunk
        left = self._left()
        while new := list(islice(left, size)):
            yield new

    def _changed(self, row: Row) -> Row | None:
        """What the changes make of a row of the base that they touch; None where they delete it."""
        entry = self._entries.pop(row[0])
        if isinstance(entry, _Appended):
            return row[0], self._joined(entry, row[1])
        return None if entry is None else (row[0], entry)

    def _left(self) -> Iterator[Row]:
        for key, left in self._entries.items():
            if isinstance(left, bytes):
                yield key, left
            elif left is not None:
                yield key, self._joined(left, None)

    def changed(self, base: Callable[[bytes], bytes | None]) -> Iterator[tuple[bytes, bytes | None]]:
        """Each key that the changes touch, with its value after them; None where it is deleted.

        Args:
            base: The value of a key in the base; asked for keys to whose values others are appended.
        """
        for key, entry in self._entries.items():
            if isinstance(entry, _Appended):
                yield key, self._joined(entry, base(key) if entry.onto_base else None)
            else:
                yield key, entry

    def _append(self, key: bytes, value: bytes) -> None:
        entry = self._entries.get(key, _ABSENT)
        if isinstance(entry, _Appended):
            entry.parts.append(value)
        elif isinstance(entry, bytes):
            self._entries[key] = _Appended([entry, value], onto_base=False)
        else:
            self._entries[key] = _Appended([value], onto_base=entry is _ABSENT)

    def _joined(self, entry: _Appended, base: bytes | None) -> bytes:
        parts = [base, *entry.parts] if entry.onto_base and base is not None else entry.parts
        return self._values.delimiter.join(parts)
