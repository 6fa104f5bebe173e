"""How operators grow, and when they meet a limit; worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.model import BatchProgress, KeyedProgress, OperatorProgress
from holdfast.observe.growth import DAY_MS, Growing, growth, state_full_in_ms

MORNING = 1_772_697_600_000
MINUTE = 60_000


def operator(rows: int | None, size: int, removed: int = 0, memory: int = 7) -> OperatorProgress:
    store = {"rocksdbSstFileSize": size} if size else {}
    return OperatorProgress("dedupe", rows, 0, removed, 0, memory, 0, 4, store)


def history(*columns: list[OperatorProgress]) -> list[BatchProgress]:
    """A batch a minute, with an operator of each column."""
    return [
        BatchProgress("visits", at, MORNING + at * MINUTE, 10, 50, None, operators)
        for at, operators in enumerate(zip(*columns, strict=True))
    ]


def test_an_operator_grows_by_its_trend_and_by_its_keys() -> None:
    # 10 keys of 10 bytes a minute: 190 keys, 1,900 bytes after 20 batches.
    (found,) = growth(history([operator(10 * at, 100 * at) for at in range(20)]), 10_000)
    assert (found.operator, found.growing) == ("0 dedupe", Growing.GROWS)
    assert found.bytes_a_day == pytest.approx(100 * 1440)
    assert found.keys_a_day == pytest.approx(10 * 1440)
    assert (found.new_keys, found.removed_keys) == (190, 0)
    # 8,100 bytes are left: 81 minutes, by both.
    assert found.full_at_ms == pytest.approx(MORNING + (19 + 81) * MINUTE, abs=1)
    assert found.why == (
        "operator 0 dedupe grows by 141 KiB per day and 14,400 keys per day: 190 keys arrived, 0 were removed"
    )


def test_keys_tell_of_growth_that_files_do_not_show_yet() -> None:
    (found,) = growth(history([operator(100 + 10 * at, 2_900) for at in range(20)]), 10_000)
    # 290 keys of 10 bytes; 7,100 bytes are 71 minutes.
    assert (found.bytes_a_day, found.by) == (None, "key_arrival")
    assert found.full_at_ms == pytest.approx(MORNING + (19 + 71) * MINUTE, abs=1)


def test_as_many_keys_going_as_coming_are_no_growth() -> None:
    # Each batch removes 50 keys and brings 50.
    (found,) = growth(history([operator(500, 5_000, removed=50) for _ in range(20)]), 10_000)
    assert (found.growing, found.full_at_ms, found.by) == (Growing.DOES_NOT_GROW, None, None)
    assert (found.new_keys, found.removed_keys) == (950, 950)
    assert found.why == "operator 0 dedupe does not grow: 950 keys arrived, 950 were removed"


def test_too_little_was_seen() -> None:
    (found,) = growth(history([operator(10 * at, 100 * at) for at in range(9)]), 10_000)
    assert (found.growing, found.full_at_ms) == (Growing.TOO_LITTLE_SEEN, None)


def test_each_operator_has_the_room_that_the_others_leave() -> None:
    still = [operator(100, 4_000) for _ in range(20)]
    grows = [operator(10 * at + 10, 100 * at + 100) for at in range(20)]
    first, second = growth(history(still, grows), 10_000)
    assert (first.growing, second.growing) == (Growing.DOES_NOT_GROW, Growing.GROWS)
    assert (first.limit_bytes, second.limit_bytes) == (8_000, 6_000)
    # From 2,000 bytes to 6,000 at 100 a minute.
    assert second.full_at_ms == pytest.approx(MORNING + (19 + 40) * MINUTE, abs=1)


def test_without_a_limit_no_day_is_told() -> None:
    (found,) = growth(history([operator(10 * at, 100 * at) for at in range(20)]), None)
    assert (found.growing, found.full_at_ms, found.by) == (Growing.GROWS, None, None)


def test_what_is_full_is_full_now() -> None:
    (found,) = growth(history([operator(10 * at, 100 * at) for at in range(20)]), 1_000)
    assert found.full_at_ms == MORNING + 19 * MINUTE


def test_keyed_operators_count_the_keys_that_they_were_given() -> None:
    def keyed(added: int) -> KeyedProgress:
        return KeyedProgress("visits", 0, 0, 0, 0, 0, 0, added, 0, 0, 0, 0, 0, 0, 0)

    column = [replace(operator(10 * at + 10, 100 * at + 100), keyed=keyed(11)) for at in range(20)]
    (found,) = growth(history(column), None)
    assert found.new_keys == 11 * 19


def test_keys_that_are_not_counted_foretell_nothing() -> None:
    (found,) = growth(history([operator(None, 100 * at + 100) for at in range(20)]), 10_000)
    assert (found.keys_a_day, found.new_keys, found.removed_keys) == (None, None, None)
    assert (found.growing, found.by) == (Growing.GROWS, "trend")


def test_another_plan_begins_anew() -> None:
    one = history([operator(10 * at, 100 * at) for at in range(20)])
    two = history([operator(1, 100)] * 3, [operator(1, 100)] * 3)
    assert {each.growing for each in growth([*one, *two], 10_000)} == {Growing.TOO_LITTLE_SEEN}


def test_a_query_is_full_by_the_sooner_forecast() -> None:
    # Files do not grow; keys do, in both operators: 10 a minute of 10 and of 20 bytes.
    first = [operator(100 + 10 * at, 2_900) for at in range(20)]
    second = [operator(100 + 10 * at, 5_800) for at in range(20)]
    left = state_full_in_ms(history(first, second), 11_700)
    # 8,700 bytes are there, and 300 come a minute.
    assert left == pytest.approx(10 * MINUTE)
    assert state_full_in_ms(history(first, second), 8_700) is None
    assert state_full_in_ms(history(first, second), None) is None


def test_before_there_are_files_no_size_is_foretold() -> None:
    (found,) = growth(history([operator(10 * at, 0, memory=100 * at) for at in range(20)]), 10_000)
    assert (found.growing, found.full_at_ms) == (Growing.GROWS, None)
    assert found.keys_a_day == pytest.approx(10 * 1440)
    assert DAY_MS == 1440 * MINUTE
