"""Keys and values of Holdfast's own keyed operators, as two savepoints are held against each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from holdfast.checkpoints.keyed.key_groups import KeyGroup
from holdfast.checkpoints.keyed.key_rows import KeyRow, key_rows, shared_rows

Row = tuple[Any, Any]


def keyed_rows(groups: Iterable[KeyGroup], where: str) -> Iterator[Row]:
    """Every key with its values by state, the groups one after the other.

    A key of one column is its value, of several a list. A list is a list and a map a dictionary; the
    time that a value with a time to live was stamped with is beside it, as `NAME.stamp_ms`. The rows of
    a broadcast stream, of which each group has a copy, are under keys that say so. Cost: some 10
    microseconds a key.

    Args:
        groups: The groups.
        where: The operator, for messages.

    Raises:
        Corrupt: A blob cannot be read.
    """
    for group in groups:
        for shared in shared_rows(group, where):
            yield {"broadcast": shared.state, "key_group": shared.group, "key": shared.key}, shared.value
        for row in key_rows(group, where):
            yield row.key[0] if len(row.key) == 1 else list(row.key), _values(row)


def _values(row: KeyRow) -> dict[str, Any]:
    found = {name: _in_order(value) for name, value in row.values.items()}
    found |= {f"{name}.stamp_ms": _in_order(value) for name, value in row.stamps.items()}
    if row.timers:
        timers = sorted(row.timers, key=lambda timer: (timer.name, timer.at_ms, timer.clock))
        found["timers"] = [
            {"name": timer.name, "clock": timer.clock, "at_ms": timer.at_ms} for timer in timers
        ]
    # Always in one order: what is the same must look the same.
    return {name: found[name] for name in sorted(found)}


def _in_order(value: Any) -> Any:
    """A map's entries in an order that does not tell when they came."""
    return {key: value[key] for key in sorted(value, key=repr)} if isinstance(value, dict) else value
