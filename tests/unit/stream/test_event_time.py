"""Durations in Spark's words, and names that survive `F.col`."""

from __future__ import annotations

import pytest

from holdfast.errors import Invalid
from holdfast.stream.event_time import names_of, quoted, spark_interval


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 milliseconds"),
        (1, "1 milliseconds"),
        (1_500, "1500 milliseconds"),
        (1_000, "1 second"),
        (90_000, "90 seconds"),
        (300_000, "5 minutes"),
        (3_600_000, "1 hour"),
        (604_800_000, "7 days"),
        (-60_000, "-1 minute"),
        (-120_000, "-2 minutes"),
    ],
)
def test_an_interval_is_written_in_its_largest_whole_unit(ms: int, text: str) -> None:
    assert spark_interval(ms) == text


def test_one_name_is_not_taken_for_its_letters() -> None:
    assert names_of("customer", where="here") == ["customer"]
    assert names_of(("customer", "seat"), where="here") == ["customer", "seat"]


def test_what_is_no_name_is_refused() -> None:
    with pytest.raises(Invalid, match="a column must be given by its name"):
        names_of([1], where="here")  # type: ignore[list-item]


def test_dots_and_backticks_stay_part_of_a_name() -> None:
    assert quoted("a.b") == "`a.b`"
    assert quoted("a`b") == "`a``b`"
