"""Keys are found by hash, and keys that share one are still two."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from python_steps import steps_of

from holdfast.errors import Unsupported
from holdfast.worker.declarations.state_descriptors import State, StateKind
from holdfast.worker.interface import DUE_EVENT, DUE_PROCESSING, TIMERS, Moment, Outcome
from holdfast.worker.state import tables
from holdfast.worker.state.key_index import Keys, same_keys
from holdfast.worker.state.layout import ROWS, Layout, form_of
from holdfast.worker.state.partition import Partition
from holdfast.worker.state.store import MemoryStore
from holdfast.worker.state.tables import Run, empty_run

STATES = (State(StateKind.VALUE, pa.int64(), "total"), State(StateKind.LIST, pa.int64(), "seen"))
KEYS = pa.schema([pa.field("who", pa.string()), pa.field("x", pa.float64())])
FORM = form_of(STATES, KEYS, timers=True)
NAN = float("nan")
Key = tuple[str | None, float | None]
TOKENS = count(1)


def opened(store: MemoryStore, moment: Moment, memory_bytes: int = 256 << 20) -> Partition:
    """A task over the one group that all keys are in."""
    partition = Partition(
        Layout("op", 1, STATES, FORM, tuple(KEYS.names), memory_bytes=memory_bytes),
        store,
        token=lambda: next(TOKENS).to_bytes(8, "big"),
    )
    partition.open([0], moment)
    return partition


def touched(partition: Partition, keys: list[Key], hashes: list[int], due: Run | None = None) -> Keys:
    table = pa.table(
        [pa.array(each, f.type) for each, f in zip(columns(keys), KEYS, strict=True)], schema=KEYS
    )
    h = np.array(hashes, np.uint64)
    return partition.touch([(h, table)], due if due is not None else empty_run(FORM.tables[ROWS]))


def columns(keys: list[Key]) -> list[list[Any]]:
    return [[key[at] for key in keys] for at in range(2)]


def exact(key: Any) -> tuple[str, ...]:
    return tuple(map(repr, key))


def keys_of(keys: Keys) -> list[tuple[str, ...]]:
    return [exact(row.values()) for row in keys.keys.to_pylist()]


EMPTY = pa.table(
    {
        "position": pa.array([], pa.int64()),
        "slot": pa.array([], pa.int64()),
        "dead": pa.array([], pa.bool_()),
        "v": pa.array([], pa.int64()),
    }
)


def keep(partition: Partition, keys: Keys, **changed: list[Any]) -> None:
    """Write columns, and the elements that `seen` names by key: a list of (position, slot, value)."""
    seen = changed.pop("seen", [])
    table = EMPTY
    if seen:
        rows = [{"position": p, "slot": s, "dead": v is None, "v": v} for p, s, v in seen]
        table = pa.Table.from_pylist(rows, schema=EMPTY.schema)
    names = {
        "total": "s:total",
        "slots": "n:seen",
        "timers": TIMERS,
        "due": DUE_EVENT,
        "wake": DUE_PROCESSING,
    }
    made = {}
    for name, cells in changed.items():
        made[names[name]] = pa.array(cells, FORM.tables[ROWS].field(names[name]).type)
    partition.keep(keys, Outcome(made, {"seen": table}, pa.table({})))


MOMENT = Moment(0, 0, 0)


def test_equal_keys_are_one_whatever_they_are_made_of() -> None:
    keys = touched(
        opened(MemoryStore(), MOMENT),
        [("a", 1.0), ("a", NAN), (None, None), ("a", NAN), (None, None), ("a", 1.0), ("a", None)],
        [5, 6, 7, 6, 7, 5, 8],
    )
    assert keys_of(keys) == [exact(each) for each in (("a", 1.0), ("a", NAN), (None, None), ("a", None))]
    assert keys.positions[0].tolist() == [0, 1, 2, 1, 2, 0, 3]
    assert keys.ord.tolist() == [0, 0, 0, 0]
    assert keys.missing.all()


def test_a_column_that_is_never_null_in_one_stream_may_be_null_in_another() -> None:
    store = MemoryStore()
    sure = pa.schema([each.with_nullable(False) for each in KEYS])
    h = np.array([5, 6], np.uint64)
    first = pa.table([pa.array(["a", "b"]), pa.array([1.0, 2.0])], schema=sure)
    second = pa.table([pa.array(["b", None]), pa.array([2.0, None])], schema=KEYS)
    partition = opened(store, MOMENT)
    keys = partition.touch([(h, first), (h + 1, second)], empty_run(FORM.tables[ROWS]))
    assert keys_of(keys) == [exact(each) for each in (("a", 1.0), ("b", 2.0), (None, None))]
    assert [each.tolist() for each in keys.positions] == [[0, 1], [1, 2]]
    keep(partition, keys, total=[10, 11, 12])
    partition.write(MOMENT)
    again = opened(store, MOMENT).touch([(h, first)], empty_run(FORM.tables[ROWS]))
    assert again.stored("s:total").to_pylist() == [10, 11]


def test_keys_that_share_a_hash_are_two_in_one_batch_and_the_next() -> None:
    store = MemoryStore()
    first = opened(store, MOMENT)
    keys = touched(first, [("a", 1.0), ("b", 1.0), ("a", 2.0), ("b", 1.0)], [9, 9, 9, 9])
    assert keys_of(keys) == [exact(each) for each in (("a", 1.0), ("b", 1.0), ("a", 2.0))]
    assert keys.positions[0].tolist() == [0, 1, 2, 1]
    assert keys.ord.tolist() == [0, 1, 2]
    keep(first, keys, total=[10, 11, 12])
    first.write(MOMENT)
    # In another order, and without the first.
    again = touched(opened(store, MOMENT), [("c", None), ("a", 2.0), ("b", 1.0)], [9, 9, 9])
    assert dict(zip(keys_of(again), again.stored("s:total").to_pylist(), strict=True)) == {
        exact(("b", 1.0)): 11,
        exact(("a", 2.0)): 12,
        exact(("c", None)): None,
    }
    assert dict(zip(keys_of(again), again.ord.tolist(), strict=True))[exact(("c", None))] == 3


def test_a_key_is_not_taken_for_the_one_in_the_state_with_its_hash() -> None:
    store = MemoryStore()
    first = opened(store, MOMENT)
    keep(first, touched(first, [("a", 1.0)], [9]), total=[1])
    first.write(MOMENT)
    keys = touched(opened(store, MOMENT), [("b", 1.0)], [9])
    assert keys.stored("s:total").to_pylist() == [None]
    assert keys.ord.tolist() == [1]


def test_a_key_keeps_its_ordinal_when_the_one_before_it_goes() -> None:
    store = MemoryStore()
    first = opened(store, MOMENT)
    keys = touched(first, [("a", 1.0), ("b", 1.0)], [9, 9])
    keep(first, keys, total=[1, 2], slots=[None, 1], seen=[(1, 0, 20)])
    first.write(MOMENT)
    second = opened(store, MOMENT)
    keep(second, touched(second, [("a", 1.0)], [9]), total=[None])
    second.write(MOMENT)
    for fold in (False, True):
        third = opened(store, MOMENT)
        keys = touched(third, [("b", 1.0)], [9])
        assert (keys.ord.tolist(), keys.stored("s:total").to_pylist()) == ([1], [2])
        assert keys.elements("seen").rows.column("v").to_pylist() == [20]
        # A new one takes the free place, with none of what was there.
        keys = touched(third, [("c", 1.0), ("b", 1.0)], [9, 9])
        assert keys_of(keys) == [exact(("c", 1.0)), exact(("b", 1.0))]
        assert keys.stored("s:total").to_pylist() == [None, 2]
        assert keys.elements("seen").starts.tolist() == [0, 0, 1]
        if not fold:
            third.fold([0], MOMENT)


def test_due_keys_that_share_a_hash_are_found_with_their_timers() -> None:
    store = MemoryStore()
    first = opened(store, MOMENT)
    keys = touched(first, [("a", 1.0), ("b", 1.0), ("c", 1.0)], [9, 9, 4])
    keep(first, keys, timers=["e100", "e50", "e10"], due=[100, 50, 10])
    names = keys_of(keys)
    first.write(MOMENT)
    moment = Moment(0, 60, 1)
    second = opened(store, moment)
    due = second.due(moment)
    keys = touched(second, [("d", 1.0), ("a", 1.0)], [9, 9], due)
    found = dict(zip(keys_of(keys), keys.stored(TIMERS).to_pylist(), strict=True))
    order = dict(zip(names, ["e100", "e50", "e10"], strict=True))
    del order[exact(("c", 1.0))]
    assert found == {**order, exact(("d", 1.0)): None}
    assert len(due) == 2


@pytest.mark.slow
def test_many_keys_with_few_hashes_hold_what_dictionaries_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "SEGMENT_ROWS", 8)
    chance = random.Random(7)
    store = MemoryStore()
    totals: dict[tuple[str, ...], int] = {}
    lists: dict[tuple[str, ...], list[int]] = {}
    timers: dict[tuple[str, ...], int] = {}
    all_keys: list[Key] = [(who, x) for who in ("a", "b", None) for x in (0.0, 1.5, NAN, None)]
    for step in range(60):
        moment = Moment(0, step, step)
        partition = opened(store, moment)
        events = [chance.choice(all_keys) for _ in range(chance.randrange(6))]
        due = partition.due(moment)
        keys = touched(partition, events, [hash_of(key) for key in events], due)
        names = keys_of(keys)
        expected_due = {name for name, at in timers.items() if at <= step}
        assert set(names) == {exact(key) for key in events} | expected_due
        assert [names[at] for at in keys.positions[0]] == [exact(key) for key in events]
        assert keys.stored("s:total").to_pylist() == [totals.get(name) for name in names]
        found = keys.elements("seen")
        spans = zip(found.starts[:-1], found.starts[1:], strict=True)
        values = found.rows.column("v").to_pylist()
        assert [values[a:b] for a, b in spans] == [lists.get(name, []) for name in names]
        total: list[int | None] = []
        slots: list[int | None] = keys.stored("n:seen").to_pylist()
        at: list[int | None] = []
        seen: list[tuple[int, int, int | None]] = []
        for position, name in enumerate(names):
            if chance.random() < 0.3:
                seen += [(position, slot, None) for slot in live_slots(found, position)]
                slots[position] = None
                for kept in (totals, lists, timers):
                    kept.pop(name, None)
            else:
                totals[name] = step
                lists.setdefault(name, []).append(step)
                seen.append((position, slots[position] or 0, step))
                slots[position] = (slots[position] or 0) + 1
                timers[name] = step + chance.randrange(1, 9)
            total.append(totals.get(name))
            at.append(timers.get(name))
        texts = [None if each is None else f"e{each}" for each in at]
        keep(partition, keys, total=total, slots=slots, timers=texts, due=at, seen=seen)
        if chance.random() < 0.2:
            partition.fold([0], moment)
        else:
            partition.write(moment)


def live_slots(found: Any, position: int) -> list[int]:
    slots: list[int] = found.rows.column("slot").to_pylist()
    return slots[found.starts[position] : found.starts[position + 1]]


def hash_of(key: Key) -> int:
    """Three hashes for twelve keys, at both ends and in the middle."""
    return (0, 1 << 63, (1 << 64) - 1)[len(exact(key)[1]) % 3]


@pytest.mark.parametrize(
    ("kind", "cells"),
    [
        (pa.int64(), [1, 2, None]),
        (pa.string(), ["a", "", None]),
        (pa.binary(), [b"a", b"", None]),
        (pa.float64(), [NAN, 1.0, None, float("inf")]),
        (pa.date32(), [dt.date(1, 1, 1), dt.date(2024, 2, 29), None]),
        (pa.decimal128(20, 3), [Decimal("1.000"), Decimal("-1.000"), None]),
        (pa.timestamp("us", "UTC"), [dt.datetime(1950, 1, 1), dt.datetime(2024, 1, 1), None]),
        (pa.bool_(), [True, False, None]),
        (pa.list_(pa.float64()), [[NAN], [1.0], [], None]),
    ],
)
def test_cells_are_the_same_only_as_themselves(kind: pa.DataType, cells: list[Any]) -> None:
    column = pa.array(cells, kind)
    assert same_keys(column, column).all()
    for by in range(1, len(cells)):
        turned = pa.array(cells[by:] + cells[:by], kind)
        assert not same_keys(column, turned).any()
        assert not same_keys(pa.chunked_array([column]), pa.chunked_array([turned[:1], turned[1:]])).any()


def test_zeros_of_both_signs_are_one_key() -> None:
    assert same_keys(pa.array([0.0]), pa.array([-0.0])).all()


def test_zeros_of_both_signs_are_one_key_where_another_key_has_their_hash() -> None:
    keys = touched(opened(MemoryStore(), MOMENT), [("a", 0.0), ("b", 1.0), ("a", -0.0)], [9, 9, 9])
    assert keys.positions[0].tolist() == [0, 1, 0]
    assert keys.ord.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("kind", "zero", "below", "other"),
    [
        (pa.struct([("x", pa.float64())]), {"x": 0.0}, {"x": -0.0}, {"x": 1.0}),
        (pa.list_(pa.float32()), [0.0], [-0.0], [0.0, 0.0]),
        (pa.list_(pa.struct([("x", pa.float64())])), [{"x": 0.0}], [{"x": -0.0}], [{"x": None}]),
    ],
)
def test_zeros_of_both_signs_within_a_key_are_one_key(
    kind: pa.DataType, zero: Any, below: Any, other: Any
) -> None:
    form = form_of(STATES, pa.schema([("key", kind)]), timers=False)
    store = MemoryStore()

    def total_of(cells: list[Any]) -> tuple[Partition, Keys]:
        layout = Layout("op", 1, STATES, form, ("key",))
        partition = Partition(layout, store, token=lambda: next(TOKENS).to_bytes(8, "big"))
        partition.open([0], MOMENT)
        table = pa.table({"key": pa.array(cells, kind)})
        hashes = np.full(len(cells), 9, np.uint64)
        return partition, partition.touch([(hashes, table)], empty_run(form.tables[ROWS]))

    partition, keys = total_of([zero, other, below])
    assert keys.positions[0].tolist() == [0, 1, 0]
    partition.keep(keys, Outcome({"s:total": pa.array([5, 6])}, {"seen": EMPTY}, pa.table({})))
    partition.write(MOMENT)
    for cell, total in ((below, 5), (zero, 5), (other, 6)):
        assert total_of([cell])[1].stored("s:total").to_pylist() == [total]


def test_keys_of_earlier_state_that_differ_in_the_sign_of_a_zero_keep_their_rows() -> None:
    """Earlier versions gave 0.0 and -0.0 two rows where they shared a hash with a third key."""
    store = MemoryStore()
    first = opened(store, MOMENT)
    keys = touched(first, [("b", 1.0), ("a", 0.0), ("c", 0.0)], [9, 9, 9])
    # As such a version wrote them: the third key is ("a", -0.0).
    minus = pa.table([pa.array(["b", "a", "a"]), pa.array([1.0, 0.0, -0.0])], schema=KEYS)
    keys.keys = minus
    keep(first, keys, total=[1, 2, 3])
    first.write(MOMENT)
    again = opened(store, MOMENT)
    keys = touched(again, [("a", -0.0), ("a", 0.0), ("a", -0.0)], [9, 9, 9])
    assert [keys.stored("s:total").to_pylist()[at] for at in keys.positions[0]] == [3, 2, 3]
    # Where one of the two is gone, the other is the row of both.
    keep(again, keys, total=[None, 3])
    again.write(MOMENT)
    keys = touched(opened(store, MOMENT), [("a", 0.0), ("a", -0.0)], [9, 9])
    assert [keys.stored("s:total").to_pylist()[at] for at in keys.positions[0]] == [3, 3]


def test_what_a_key_costs_does_not_grow_with_the_keys_of_its_hash() -> None:
    def pass_over(size: int) -> int:
        store = MemoryStore()
        partition = opened(store, MOMENT)
        old: list[Key] = [(str(at), 1.0) for at in range(size)]
        keys = touched(partition, old, [9] * size)
        keep(partition, keys, total=list(range(size)))
        partition.write(MOMENT)
        again = opened(store, MOMENT)
        every: list[Key] = [*old, *((str(at), 2.0) for at in range(size))]
        steps = steps_of(lambda: touched(again, every, [9] * 2 * size).stored("s:total"))
        found = touched(again, every, [9] * 2 * size)
        totals = found.stored("s:total").to_pylist()
        assert [totals[at] for at in found.positions[0]] == [*range(size), *[None] * size]
        return steps

    # Four times the keys are four times the work; each against each would be sixteen times.
    assert pass_over(400) < 5 * pass_over(100)


def test_xxhash64_has_keys_with_one_hash_under_every_seed() -> None:
    """Why there is no seed: the second key differs from the first in what two rounds take back."""
    word, first, second = 1 << 64, 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F

    def turned(number: int, by: int) -> int:
        return (number << by | number >> (64 - by)) % word

    def round_of(number: int) -> int:
        return turned(number * second % word, 31) * first % word

    def unround(number: int) -> int:
        return turned(number * pow(first, -1, word) % word, 33) * pow(second, -1, word) % word

    one, other = int.from_bytes(b"customer", "little"), int.from_bytes(b"-number1", "little")
    top = 1 << 63
    again = (unround(round_of(one) ^ turned(top, 37)), unround(round_of(other) ^ top))
    keys = [b"".join(part.to_bytes(8, "little") for part in parts) for parts in ((one, other), again)]
    assert keys[0] != keys[1]
    assert all(len({xxhash.xxh64_intdigest(key, seed) for key in keys}) == 1 for seed in range(1000))


def test_elements_that_do_not_fit_in_memory_are_refused_with_their_size() -> None:
    """An element has 28 bytes: hash, ordinal, slot and value. A third of the memory is for elements."""
    store, stored = MemoryStore(), 100_000
    partition = opened(store, MOMENT)
    keys = touched(partition, [("a", 1.0)], [5])
    position = pa.array(np.zeros(stored, np.int64))
    slots = pa.array(np.arange(stored))
    table = pa.table([position, slots, pa.array(np.zeros(stored, np.bool_)), slots], schema=EMPTY.schema)
    changed = {"n:seen": pa.array([stored], FORM.tables[ROWS].field("n:seen").type)}
    partition.keep(keys, Outcome(changed, {"seen": table}, pa.table({})))
    partition.write(MOMENT)
    roomy = touched(opened(store, MOMENT, 9 << 20), [("a", 1.0)], [5])
    assert roomy.elements("seen").starts.tolist() == [0, stored]
    read = touched(opened(store, MOMENT, 6 << 20), [("a", 1.0)], [5])
    with pytest.raises(Unsupported, match="does not fit") as caught:
        read.elements("seen")
    assert (caught.value.found or "").startswith("about 3 MiB")
    assert caught.value.expected == "at most 2 MiB"
