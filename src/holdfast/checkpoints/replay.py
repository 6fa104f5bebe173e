"""What the batches since a base have done to it, laid over its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from holdfast.formats.records import Change, Record
from holdfast.formats.row_forms import ValueForm

_ABSENT = object()


class _Appended:
    """Values that RocksDB would merge: behind those of the base, or on their own."""

    __slots__ = ("onto_base", "parts")

    def __init__(self, parts: list[bytes], *, onto_base: bool) -> None:
        self.parts = parts
        self.onto_base = onto_base


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

    def over(self, rows: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        """The rows of the base as the changes leave them, and those that are new. Uses the changes up."""
        entries = self._entries
        if not entries:
            yield from rows
            return
        for row in rows:
            entry = entries.pop(row[0], _ABSENT)
            if entry is _ABSENT:
                yield row
            elif isinstance(entry, bytes):
                yield row[0], entry
            elif isinstance(entry, _Appended):
                yield row[0], self._joined(entry, row[1])
        for key, left in entries.items():
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
