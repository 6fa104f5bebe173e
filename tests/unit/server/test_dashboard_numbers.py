from __future__ import annotations

import json

import pytest

from holdfast.server.dashboard import figures
from holdfast.server.dashboard.chart_drawing import spark
from holdfast.server.dashboard.rendering import plain_text


def test_what_is_unknown_is_a_dash() -> None:
    assert (figures.size(1536), figures.size(None)) == ("1.5 KiB", "–")
    assert (figures.duration(185_000), figures.duration(None)) == ("3 min 5 s", "–")


def test_counts_rates_and_shares() -> None:
    found = [figures.count(each) for each in (0, 9_999, 12_345, 123_456, 1_204_000)]
    assert found == ["0", "9,999", "12.3 k", "123 k", "1.20 M"]
    assert [figures.rate(each) for each in (0, 0.42, 12.4, 98_700)] == ["0", "0.4", "12", "98.7 k"]
    assert [figures.share(each) for each in (0, 0.003, 0.0999, 0.42, 1)] == [
        "0 %",
        "0.3 %",
        "10 %",
        "42 %",
        "100 %",
    ]
    assert figures.exact(1_234_567) == "1,234,567"


def test_how_long_ago() -> None:
    now = 1_772_700_000_000
    steps = (0, 1_500, 59_999, 60_000, 3_600_000, 90_000_000)
    assert [figures.ago(now - each, now) for each in steps] == [
        "just now",
        "just now",
        "59 s ago",
        "1 min ago",
        "1 h ago",
        "1 d ago",
    ]
    assert figures.ago(now + 5_000, now) == "in 5.0 s"
    assert figures.instant(now) == "2026-03-05 08:40:00 UTC"


def test_a_small_line_needs_two_values() -> None:
    assert spark([1.0]) == ""
    assert spark([0.0, 0.0]).startswith("M30 26")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("ann", "ann"),
        ({"count": 2}, '{"count": 2}'),
        (
            {"start": "2026-03-05T08:10:00+00:00", "end": "2026-03-05T08:10:30+00:00"},
            "2026-03-05 08:10 – 2026-03-05 08:10:30",
        ),
        ({"start": "2026-03-05T08:10:00+00:00", "end": "", "more": 1}, None),
        (
            [{"name": "away", "clock": "event", "at_ms": 1_772_700_100_000}],
            "away due 2026-03-05 08:41:40 UTC (event time)",
        ),
        ([], "[]"),
    ],
)
def test_values_of_state_are_told_as_people_read_them(value: object, text: str | None) -> None:
    assert plain_text(value) == (json.dumps(value) if text is None else text)
