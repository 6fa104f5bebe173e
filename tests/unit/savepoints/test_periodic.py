"""Savepoints that are taken again and again: which stay, which go, and which are nobody's business."""

from __future__ import annotations

import pytest
from catalogs import Hands, catalog, file_query, manifests

from holdfast.errors import Corrupt, NotFound
from holdfast.savepoints.catalog import load
from holdfast.savepoints.derived import FileChanges, derive
from holdfast.savepoints.leases import TakeLease
from holdfast.savepoints.periodic import PeriodicTake, newest_ms, surplus, take_and_retain
from holdfast.storage.memory import MemoryStorage

OTHER = "0c9c4a52-1111-4222-8333-444455556666"


def turn(hands: Hands, checkpoint: MemoryStorage, into: MemoryStorage, retained: int | None) -> PeriodicTake:
    return take_and_retain(
        checkpoint, into, retained=retained, clock=hands.clock, chance=hands.chance, label="nightly"
    )


def batches(into: MemoryStorage, label: str | None = "nightly") -> list[int]:
    found = [load(into, each) for each in manifests(into)]
    return [each.batch_id for each in found if each.label == label]


def test_the_newest_stay_and_others_are_left_alone() -> None:
    hands, into = Hands(), catalog()
    by_hand = hands.take(MemoryStorage(file_query(2)), into)
    named = hands.take(MemoryStorage(file_query(2)), into, label="before the move")
    foreign = MemoryStorage(file_query(3, OTHER))
    turn(hands, foreign, into, 1)
    for count in range(1, 7):
        found = turn(hands, MemoryStorage(file_query(count)), into, 3)
        assert found.taken is not None
        assert found.left is None
        assert len(found.removed) == (1 if count > 3 else 0)
    mine = [each for each in manifests(into) if load(into, each).query_id != OTHER]
    assert batches(into) == [2, 3, 4, 5]  # the first of these is the other query's
    assert {by_hand.manifest.savepoint_id, named.manifest.savepoint_id} <= set(mine)
    hands.sweep(into)
    assert batches(into, None) == [1]


def test_the_same_batch_is_not_taken_twice() -> None:
    hands, into = Hands(), catalog()
    checkpoint = MemoryStorage(file_query(4))
    assert turn(hands, checkpoint, into, 2).taken is not None
    before = into.files
    again = turn(hands, checkpoint, into, 2)
    assert (again.taken, again.batch_id, again.as_dict()["savepoint"]) == (None, 3, None)
    assert into.files == before


def test_all_stay_where_no_number_is_given() -> None:
    hands, into = Hands(), catalog()
    for count in range(1, 8):
        turn(hands, MemoryStorage(file_query(count)), into, None)
    assert batches(into) == [0, 1, 2, 3, 4, 5, 6]


def test_a_take_under_way_puts_the_removal_off() -> None:
    hands, into = Hands(), catalog()
    turn(hands, MemoryStorage(file_query(1)), into, 1)
    busy = TakeLease(into, "somebody", hands.clock)
    busy.begin()
    found = turn(hands, MemoryStorage(file_query(2)), into, 1)
    assert found.taken is not None
    assert (found.removed, found.left) == ((), "a savepoint is being taken into this catalog")
    busy.end()
    assert len(turn(hands, MemoryStorage(file_query(3)), into, 1).removed) == 2
    assert batches(into) == [2]


def test_where_nothing_can_be_taken_nothing_is_removed() -> None:
    hands, into = Hands(), catalog()
    turn(hands, MemoryStorage(file_query(2)), into, 1)
    damaged = MemoryStorage({**file_query(3), "commits/2": b"v1"})
    with pytest.raises(Corrupt):
        turn(hands, damaged, into, 1)
    with pytest.raises(NotFound):
        turn(hands, MemoryStorage({"metadata": file_query(1)["metadata"]}), into, 1)
    assert batches(into) == [1]


def test_when_the_newest_was_taken() -> None:
    hands, into = Hands(), catalog()
    checkpoint = MemoryStorage(file_query(2))
    query_id = "7d7a1b9e-9dda-47b2-8f49-4073fd4a7361"
    assert newest_ms(into, query_id, checkpoint.uri, "nightly") is None
    hands.take(checkpoint, into)
    assert newest_ms(into, query_id, checkpoint.uri, "nightly") is None
    taken = turn(hands, checkpoint, into, 2).taken
    assert taken is not None
    assert newest_ms(into, query_id, checkpoint.uri, "nightly") == taken.manifest.created_ms


def test_what_a_person_has_made_of_one_stays_whatever_its_label() -> None:
    hands, into = Hands(), catalog()
    taken = turn(hands, MemoryStorage(file_query(1)), into, 1).taken
    assert taken is not None
    changed = derive(
        into,
        taken.manifest,
        FileChanges(MemoryStorage()),
        {"kind": "edit"},
        origin=into,
        label="nightly",
        clock=hands.clock,
        chance=hands.chance,
    ).manifest.savepoint_id
    for count in range(2, 5):
        turn(hands, MemoryStorage(file_query(count)), into, 1)
    assert batches(into) == [0, 3]
    assert changed in manifests(into)


def test_an_age_keeps_an_hour_whole_then_one_for_each_hour_and_day() -> None:
    minute, hour, day = 60_000, 3_600_000, 86_400_000
    now = 100 * day
    # By hand: 8 days old; 6 days and a minute later; 5 hours and two in the hour of 4; then the last hour.
    ages = [8 * day, 6 * day, 6 * day - minute, 5 * hour, 4 * hour, 4 * hour - minute, 30 * minute, minute]
    assert surplus([now - age for age in ages], now, 7 * day) == {0, 2, 5}
    assert surplus([now - age for age in ages], now, 2 * hour) == {0, 1, 2, 3, 4, 5}
    assert surplus([now - 9 * day], now, 7 * day) == set()  # the newest


def test_an_age_deletes_what_is_older() -> None:
    hands, into = Hands(), catalog()
    for count in range(1, 5):
        take_and_retain(
            MemoryStorage(file_query(count)),
            into,
            retained=None,
            retained_ms=1,
            clock=hands.clock,
            chance=hands.chance,
            label="nightly",
        )
    assert batches(into)[-1] == 3
    assert len(batches(into)) <= 2
