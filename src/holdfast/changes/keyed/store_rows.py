"""The rows of Spark's store that contain key groups, and changes of these rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from holdfast.checkpoints.keyed import BLOB, KEY_GROUP, KeyGroup, KeyTimer, group_key, group_row, numbering_of
from holdfast.checkpoints.state.states import OperatorStates
from holdfast.formats.key_groups import BASE, FORMS, LOG, META, NEVER, Meta
from holdfast.formats.operators import LIST_COUNTER, TIMER_INDEX, TIMERS
from holdfast.formats.rows.spark_types import Atom, Struct
from holdfast.formats.rows.unsafe_row import RowCodec
from holdfast.layout import StoreId
from holdfast.savepoints.store_edits import RowChange
from holdfast.worker.state.group_numbers import Numbering


@dataclass(frozen=True, slots=True)
class KeyChange:
    """The change of one key.

    Attributes:
        key: The key, given by column, as values in the order of the columns, or as the value of the only
            column.
        states: The new values by state: a complete list, a map as a dictionary or pairs, or for an
            aggregating state the accumulator; None deletes a state. States that are not named stay unchanged.
        stamps: The times when values with a TTL were written, in the shape of the value, in milliseconds. By
            default, an existing value, entry or element keeps its stamp unless it has expired, and a new one
            gets the time of the batch.
        timers: The new timers of the key; None leaves them unchanged.
        remove: Whether to delete the key with all its state.
    """

    key: Any
    states: Mapping[str, Any] = field(default_factory=dict)
    stamps: Mapping[str, Any] = field(default_factory=dict)
    timers: Sequence[KeyTimer] | None = None
    remove: bool = False


@dataclass(frozen=True, slots=True)
class GroupChange:
    """The change of a key group.

    Attributes:
        before: The content of the group before; None if it had no state.
        after: The new content of the group; None to delete it.
    """

    before: KeyGroup | None
    after: KeyGroup | None


TIMES_BY_KEY: Final = TIMERS.label("event")
KEYS_BY_TIME: Final = TIMER_INDEX.label("event")

_COUNT: Final = RowCodec(Struct(("count",), (Atom("long"),)))
_NOTHING: Final = RowCodec(Struct(("__dummy__",), (Atom("void"),))).encode({"__dummy__": None})
_AT: Final = "expiryTimestampMs"


@dataclass(frozen=True, slots=True)
class StoreRow:
    """A row of Spark's store to put or delete.

    Attributes:
        partition: The partition of the row.
        family: The column family of the row.
        key_row: The key as an UnsafeRow; `StateCodec.stored_key` returns its stored form.
        value_rows: The row of the value, or the rows of a list; None to delete the key.
        is_list: Whether the value is a list.
    """

    partition: int
    family: str
    key_row: bytes
    value_rows: tuple[bytes, ...] | None
    is_list: bool = False


def group_rows(
    operator: OperatorStates, groups: Iterable[GroupChange]
) -> dict[StoreId, tuple[RowChange, ...]]:
    """Return the changes of rows in Spark's store for changes of key groups."""
    (name,) = operator.store_names
    numbering = numbering_of(operator)
    changes: dict[StoreId, list[RowChange]] = {}
    for group in groups:
        for row in store_rows(operator.partitions, numbering, group.before, group.after):
            store = StoreId(operator.operator_id, row.partition, name)
            codec = operator.codec_of(name, row.family)
            changes.setdefault(store, []).append(RowChange(codec, row.key_row, row.value_rows, row.is_list))
    return {store: tuple(rows) for store, rows in changes.items()}


def store_rows(
    partitions: int, numbering: Numbering, before: KeyGroup | None, after: KeyGroup | None
) -> Iterator[StoreRow]:
    """Yield the puts and deletes that give a store the new content of a key group.

    Spark has two companion families, which are also updated: the number of blobs in each list, and the timer
    that activates the group.

    Args:
        partitions: The number of partitions of the operator's state.
        numbering: The numbering of the operator's groups.
        before: The stored group; None if the group is not stored.
        after: The new content of the group; None to delete it.
    """
    group = after.group if after is not None else before.group if before is not None else 0
    partition, key = numbering.partition_of(group, partitions), group_key(numbering, group)
    if after is None or after.meta is None:
        for family in (META, FORMS):
            yield StoreRow(partition, family, key, None)
    else:
        yield StoreRow(partition, META, key, (BLOB.encode({"b": after.meta}),))
        yield StoreRow(partition, FORMS, key, (BLOB.encode({"b": after.forms}),))
    for family in (BASE, LOG):
        had = () if before is None else getattr(before, family)
        has = () if after is None else getattr(after, family)
        if has:
            yield StoreRow(partition, family, key, tuple(BLOB.encode({"b": blob}) for blob in has), True)
            yield StoreRow(partition, LIST_COUNTER.label(family), key, (_COUNT.encode({"count": len(has)}),))
        elif had:
            yield StoreRow(partition, family, key, None, True)
            yield StoreRow(partition, LIST_COUNTER.label(family), key, None)
    yield from _timers(partition, numbering, group, _wakes(before), _wakes(after))


def _timers(partition: int, numbering: Numbering, group: int, before: int, after: int) -> Iterator[StoreRow]:
    if before == after:
        return
    by_key, by_time = _timer_rows(numbering)
    for at, value in ((before, None), (after, (_NOTHING,))):
        if at != NEVER:
            values = {_AT: at, "key": {KEY_GROUP: numbering.number_of(group)}}
            yield StoreRow(partition, TIMES_BY_KEY, by_key.encode(values), value)
            yield StoreRow(partition, KEYS_BY_TIME, by_time.encode(values), value)


@lru_cache(maxsize=2)
def _timer_rows(numbering: Numbering) -> tuple[RowCodec, RowCodec]:
    """Return the codecs of timer keys, by group and by time."""
    group, at = group_row(numbering).type, Atom("long")
    return RowCodec(Struct(("key", _AT), (group, at))), RowCodec(Struct((_AT, "key"), (at, group)))


def _wakes(group: KeyGroup | None) -> int:
    return NEVER if group is None or group.meta is None else Meta.decode(group.meta).wake_event
