"""Keys and values of Holdfast's own keyed operators, out of the blobs that Spark keeps for them.

Spark's store has four entries for a key group: its record, the forms of its tables, and the rows as blobs, a
base and the changes since. Here the rows of a group are put together again, key by key, without the program
that wrote them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.checkpoints.rows import Pairs
from holdfast.checkpoints.states import OperatorStates, StateCodec
from holdfast.errors import Corrupt
from holdfast.worker.interface import SLOT_PREFIX, STAMP_PREFIX, TIMERS, VALUE_PREFIX
from holdfast.worker.kept.form import KEY_PREFIX, ROWS, Form, decode, fingerprint_of, form_from_json
from holdfast.worker.kept.store import BASE, FORMS, LOG, META
from holdfast.worker.running.timers import decode as timers_of
from holdfast.worker.running.timers import timer_of

# Rows of a broadcast stream have this ordinal in place of a key's.
_SHARED: Final = -1
_OWN: Final = frozenset({META, FORMS, BASE, LOG})

Row = tuple[Any, Any]


def is_keyed(operator: OperatorStates) -> bool:
    """Whether an operator is one of Holdfast's own."""
    return {each.name.family for each in operator.known() if not each.name.internal} == _OWN


@dataclass(slots=True)
class KeyGroups:
    """The blobs of the key groups of one partition, gathered as they are read.

    Attributes:
        forms: The forms of each group's tables, as JSON.
        base: Each group's base.
        log: Its changes since, in order.
    """

    forms: dict[int, bytes] = field(default_factory=dict)
    base: dict[int, list[bytes]] = field(default_factory=dict)
    log: dict[int, list[bytes]] = field(default_factory=dict)

    def add(self, codec: StateCodec, pairs: Pairs) -> None:
        """Take in rows of Spark's store; those that are not blobs are left out."""
        name = codec.name.family
        if name not in (FORMS, BASE, LOG):
            return
        for key, value in pairs:
            rows, _ = codec.values.rows(value, codec.where)
            group = int(next(iter(codec.key_values(codec.key_row(key)).values())))
            blobs = [bytes(codec.value_values(row)["b"]) for row in rows]
            if name == FORMS:
                self.forms[group] = blobs[0]
            else:
                (self.base if name == BASE else self.log)[group] = blobs

    def rows(self, where: str) -> Iterator[Row]:
        """Every key with its values by state, the groups one after the other.

        A key of one column is its value, of several a list. A list is a list and a map a dictionary; the
        time that a value with a time to live was stamped with is beside it, as `NAME.stamp_ms`. The rows of
        a broadcast stream, of which each group has a copy, are under keys that say so. Cost: some 10
        microseconds a key.

        Args:
            where: The operator, for messages.

        Raises:
            Corrupt: A blob cannot be read.
        """
        for group in sorted(self.base.keys() | self.log.keys()):
            blobs = [*self.base.get(group, ()), *self.log.get(group, ())]
            try:
                yield from _group_rows(group, json.loads(self.forms.get(group, b"{}")), blobs)
            except (ValueError, KeyError, TypeError, struct.error) as error:
                raise Corrupt("a key group cannot be read", where=where, found=f"{group}: {error}") from error


def _group_rows(group: int, known: Mapping[str, Any], blobs: Sequence[bytes]) -> Iterator[Row]:
    forms: dict[bytes, Form] = {bytes.fromhex(mark): form_from_json(each) for mark, each in known.items()}
    keys: dict[tuple[int, int], Mapping[str, Any]] = {}
    elements: dict[str, dict[tuple[int, int], dict[int, Mapping[str, Any]]]] = {}
    for blob in blobs:
        form = forms[fingerprint_of(blob)]
        for table, batch in decode(form, blob).items():
            rows = batch.to_pylist()
            if table == ROWS:
                _put(keys, rows)
            else:
                _put_elements(elements.setdefault(table, {}), rows)
    for name, by_key in elements.items():
        for identity, slots in by_key.items():
            if identity[1] == _SHARED:
                for each in _in_order(slots):
                    yield {"broadcast": name, "key_group": group, "key": each.get("k")}, each["v"]
    for identity, row in keys.items():
        parts = [row[name] for name in row if name.startswith(KEY_PREFIX)]
        yield parts[0] if len(parts) == 1 else parts, _values(row, identity, elements)


def _put(keys: dict[tuple[int, int], Mapping[str, Any]], rows: Iterable[Mapping[str, Any]]) -> None:
    for row in rows:
        identity = (row["h"], row["ord"])
        if row["dead"]:
            keys.pop(identity, None)
        else:
            keys[identity] = row


def _put_elements(
    held: dict[tuple[int, int], dict[int, Mapping[str, Any]]], rows: Iterable[Mapping[str, Any]]
) -> None:
    for row in rows:
        slots = held.setdefault((row["h"], row["ord"]), {})
        if row["dead"]:
            slots.pop(row["slot"], None)
        else:
            slots[row["slot"]] = row


def _values(
    row: Mapping[str, Any],
    identity: tuple[int, int],
    elements: Mapping[str, Mapping[tuple[int, int], Mapping[int, Mapping[str, Any]]]],
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for column, value in row.items():
        if column.startswith(VALUE_PREFIX) and value is not None:
            found[column.removeprefix(VALUE_PREFIX)] = value
        elif column.startswith(STAMP_PREFIX) and value is not None:
            found[f"{column.removeprefix(STAMP_PREFIX)}.stamp_ms"] = value
        elif column == TIMERS and value:
            timers = sorted((timer_of(key, at) for key, at in timers_of(value).items()), key=repr)
            found[TIMERS] = [{"name": each.name, "clock": each.clock, "at_ms": each.at_ms} for each in timers]
    for name, by_key in elements.items():
        slots = _in_order(by_key.get(identity, {}))
        if slots and f"{SLOT_PREFIX}{name}" in row:
            found[name] = _elements(slots, "v")
            if "t" in slots[0]:
                found[f"{name}.stamp_ms"] = _elements(slots, "t")
    # Always in one order: what is the same must look the same.
    return {name: found[name] for name in sorted(found)}


def _elements(slots: Sequence[Mapping[str, Any]], column: str) -> Any:
    """A column of a list's elements, or of a map's by their keys."""
    if "k" not in slots[0]:
        return [each[column] for each in slots]
    by_key = {_plain(each["k"]): each[column] for each in slots}
    return {key: by_key[key] for key in sorted(by_key, key=repr)}


def _in_order(slots: Mapping[int, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [slots[each] for each in sorted(slots)]


def _plain(key: Any) -> Any:
    """A map's key as one that a dictionary takes."""
    return repr(key) if isinstance(key, (dict, list)) else key
