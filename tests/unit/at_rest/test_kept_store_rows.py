"""The rows of Spark's store that hold a key group, against those of a real checkpoint and by hand."""

from __future__ import annotations

import struct

import pytest
from state_rows import state_rows

from golden import KEYED, golden
from holdfast.changes.keyed.store_rows import KEYS_BY_TIME, TIMES_BY_KEY, StoreRow, store_rows
from holdfast.checkpoints.keyed import KeyGroup, numbering_of, stored_group, stored_groups
from holdfast.checkpoints.state.states import operator_states
from holdfast.formats.key_groups import Meta
from holdfast.worker.state.group_numbers import EVEN, PLAIN, Numbering


@pytest.mark.parametrize("name", KEYED)
def test_as_spark_has_written_them(name: str) -> None:
    """Every row of a real operator is made again, bytes for bytes, in the partition that Spark gave it."""
    storage = golden(name)
    [operator] = operator_states(storage)
    made = {
        (row.partition, row.family, row.key_row): row.value_rows
        for group in stored_groups(storage, operator)
        for row in store_rows(operator.partitions, numbering_of(operator), None, group)
    }
    found = {(row.partition, row.state.family, row.key_row): row.value_rows for row in state_rows(storage)}
    assert made == found
    assert {stored_group(storage, operator, each).group for each in (0, 1, 2)} == {0, 1, 2}  # type: ignore[union-attr]


def group(wake: int | None, base: int, log: int) -> KeyGroup:
    more = {} if wake is None else {"wake_event": wake}
    meta = Meta(8, b"12345678", b"abcdefgh", **more)  # type: ignore[arg-type]
    return KeyGroup(3, meta.encode(), b"{}", (b"x",) * base, (b"y",) * log)


def by_family(rows: list[StoreRow]) -> dict[str, int | None]:
    return {row.family: None if row.value_rows is None else len(row.value_rows) for row in rows}


def test_lists_that_become_empty_are_deleted_with_their_counters() -> None:
    rows = by_family(list(store_rows(4, EVEN, group(None, 2, 3), group(None, 1, 0))))
    assert rows == {
        "meta": 1,
        "forms": 1,
        "base": 1,
        "$rowCounter_base": 1,
        "log": None,
        "$rowCounter_log": None,
    }
    gone = by_family(list(store_rows(4, EVEN, group(None, 2, 0), None)))
    assert gone == {"meta": None, "forms": None, "base": None, "$rowCounter_base": None}


@pytest.mark.parametrize("wake", [5, -5, 1_700_000_000_000])
@pytest.mark.parametrize(("numbering", "number"), [(PLAIN, 3), (EVEN, 168989462)])
def test_the_timer_that_wakes_a_group_moves_with_it(wake: int, numbering: Numbering, number: int) -> None:
    rows = list(store_rows(4, numbering, group(7, 1, 0), group(wake, 1, 0)))
    timers = {(row.family, row.key_row): row.value_rows for row in rows if row.family.startswith("$event")}
    # An UnsafeRow: null bits, then eight bytes a field; a struct is its place and size, and stands behind.
    key = struct.pack("<qq", 0, number)
    nothing = (struct.pack("<qq", 1, 0),)
    assert timers == {
        (TIMES_BY_KEY, struct.pack("<qQq", 0, 24 << 32 | 16, 7) + key): None,
        (KEYS_BY_TIME, struct.pack("<qqQ", 0, 7, 24 << 32 | 16) + key): None,
        (TIMES_BY_KEY, struct.pack("<qQq", 0, 24 << 32 | 16, wake) + key): nothing,
        (KEYS_BY_TIME, struct.pack("<qqQ", 0, wake, 24 << 32 | 16) + key): nothing,
    }
    same = store_rows(4, numbering, group(wake, 1, 0), group(wake, 1, 0))
    assert not any(row.family.startswith("$event") for row in same)
