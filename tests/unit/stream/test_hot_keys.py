from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from holdfast.errors import Invalid
from holdfast.formats.rows.murmur3 import hash_int
from holdfast.stream.keyed.hot_keys import HotKeys, labels_of
from holdfast.stream.split_hot import SplitJoin, _side


def test_the_hash_of_a_number_is_spark_s() -> None:
    # SELECT hash(0), hash(1), hash(2): the first column's seed is 42.
    assert [hash_int(value, 42) for value in (0, 1, 2)] == [933211791, -559580957, 1765031574]


@pytest.mark.parametrize("parts", [2, 3, 8, 32])
def test_labels_leave_each_remainder_once_and_are_the_least(parts: int) -> None:
    for seed in (42, -1, 0, 1 << 31):
        labels = labels_of(seed, parts)
        assert [hash_int(label, seed) % parts for label in labels] == list(range(parts))
        for place, label in enumerate(labels):
            assert all(hash_int(less, seed) % parts != place for less in range(label))


def test_parts_are_apart_wherever_the_partitions_fit_them() -> None:
    labels = labels_of(1234, 8)
    for partitions in (8, 16, 200):
        assert len({hash_int(label, 1234) % partitions for label in labels}) == 8
    for partitions in (2, 4):
        places = [hash_int(label, 1234) % partitions for label in labels]
        assert {places.count(place) for place in range(partitions)} == {8 // partitions}


def hot(*keys: tuple[Any, ...], parts: int = 8, by: tuple[str, ...] = ("k",)) -> HotKeys:
    return HotKeys(by, keys, parts, tuple((0,) for _ in keys))


def test_a_split_is_noted_once_and_equal_ones_are_accepted() -> None:
    first = SplitJoin("orders", hot(("a",), (None,)), "left")
    noted = first.new_note(None)
    assert noted == {"by": ["k"], "hot": ['["a"]', "[null]"], "parts": 8, "side": "left"}
    assert first.note_name == "split-orders.json"
    assert SplitJoin("orders", hot((None,), ("a",)), "left").new_note(noted) is None


def test_values_that_are_equal_are_noted_alike() -> None:
    summer = dt.datetime(2026, 7, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    one = hot((summer, Decimal("1.50"), b"\x01"), by=("a", "b", "c")).note()
    other = hot((summer.astimezone(dt.timezone.utc), Decimal("1.5"), bytearray(b"\x01")), by=("a", "b", "c"))
    assert one == other.note()


@pytest.mark.parametrize(
    ("changed", "difference"),
    [
        (SplitJoin("x", hot(("a",), ("c",)), "left"), 'no longer hot: ["b"]; newly hot: ["c"]'),
        (SplitJoin("x", hot(("a",), ("b",), parts=4), "left"), "parts was 8, is 4"),
        (SplitJoin("x", hot(("a",), ("b",)), "right"), "side was 'left', is 'right'"),
        (SplitJoin("x", hot(("a",), ("b",), by=("j",)), "left"), "by was ['k'], is ['j']"),
        (
            SplitJoin("x", hot(), "left"),
            'parts was 8, is 0; side was \'left\', is None; no longer hot: ["a"], ["b"]',
        ),
    ],
)
def test_a_changed_split_is_refused_with_the_difference(changed: SplitJoin, difference: str) -> None:
    before = SplitJoin("x", hot(("a",), ("b",)), "left").new_note(None)
    with pytest.raises(Invalid, match="split of a join has changed") as caught:
        changed.new_note(before)
    assert caught.value.found == difference


@pytest.mark.parametrize(
    ("kind", "split", "side"),
    [
        ("inner", None, "left"),
        ("inner", "right", "right"),
        ("left", None, "left"),
        ("left", "left", "left"),
        ("semi", None, "left"),
        ("right", None, "right"),
    ],
)
def test_the_side_follows_from_the_kind(kind: str, split: str | None, side: str) -> None:
    assert _side(kind, split) == side


@pytest.mark.parametrize(
    ("kind", "split", "hint"),
    [
        ("left", "right", "returned once per part"),
        ("semi", "right", "once for each part with a match"),
        ("right", "left", "right row without a match"),
        ("full", None, "returned from both sides"),
    ],
)
def test_a_side_that_cannot_be_split_exactly_is_refused_with_the_reason(
    kind: str, split: str | None, hint: str
) -> None:
    with pytest.raises(Invalid, match="would change the result of a") as caught:
        _side(kind, split)
    assert caught.value.hint is not None
    assert hint in caught.value.hint
