"""Rows of Spark's stores that are put or deleted: what edits, erasures and keyed state are in the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.checkpoints.state.states import StateCodec
from holdfast.layout import StoreId
from holdfast.savepoints.rewrite.open_store import OpenStore

_TOGETHER: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row that is written or deleted.

    Attributes:
        codec: The family that it is in.
        key: Its key, as an UnsafeRow.
        rows: Its value, or the elements of a list, likewise; None where it goes.
        is_list: Whether the value is a list.
    """

    codec: StateCodec
    key: bytes
    rows: tuple[bytes, ...] | None
    is_list: bool = False

    @property
    def family(self) -> str:
        """The name of its column family."""
        return self.codec.name.family

    @property
    def stored_key(self) -> bytes:
        """Its key as the store has it, without the number of its family."""
        return self.codec.stored_key(self.key)


StoreChanges = Mapping[StoreId, Sequence[RowChange]]


def put_rows(store: OpenStore, changes: Iterable[RowChange]) -> None:
    """Put and delete rows of one store; each key once. Some megabytes of them are held at a time."""
    waiting: list[RowChange] = []
    size = 0
    for change in changes:
        waiting.append(change)
        size += len(change.key) + sum(map(len, change.rows or ()))
        if size > _TOGETHER:
            _put(store, waiting)
            waiting, size = [], 0
    _put(store, waiting)


def _put(store: OpenStore, changes: Iterable[RowChange]) -> None:
    by_family: dict[str, list[RowChange]] = {}
    for change in changes:
        by_family.setdefault(change.family, []).append(change)
    for family, rows in by_family.items():
        gone = [row.stored_key for row in rows if row.rows is None]
        values = [(row.stored_key, row.rows[0]) for row in rows if row.rows is not None and not row.is_list]
        lists = [(row.stored_key, row.rows) for row in rows if row.rows is not None and row.is_list]
        store.delete(gone, family)
        store.put([key for key, _ in values], [value for _, value in values], family)
        store.put_lists([key for key, _ in lists], [elements for _, elements in lists], family)
