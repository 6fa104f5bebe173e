from __future__ import annotations

import json

import pytest

from holdfast.server.dashboard import figures
from holdfast.server.dashboard.figures import Point, chart, drawing, spark
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


def points(*values: float) -> list[Point]:
    return [Point(number, number, number * 1000, value) for number, value in enumerate(values)]


def test_a_chart_keeps_each_of_a_few_points() -> None:
    made = chart("k", "K", "rows", "largest", points(3, 1, 2))
    assert [each.value for each in made.points] == [3, 1, 2]
    assert (made.newest, made.lowest, made.highest) == (2, 1, 3)


@pytest.mark.parametrize(
    ("folding", "values"),
    [("largest", [1, 3, 5]), ("newest", [1, 3, 5]), ("sum", [1, 5, 9]), ("mean", [1, 2.5, 4.5])],
)
def test_many_points_are_folded_from_the_newest(folding: str, values: list[float]) -> None:
    made = chart("k", "K", "rows", folding, points(1, 2, 3, 4, 5), most=3)
    # Five batches into three points: the oldest point is the one that is not full.
    assert [(each.first, each.last) for each in made.points] == [(0, 0), (1, 2), (3, 4)]
    assert [each.value for each in made.points] == {
        "largest": [1, 3, 5],
        "newest": [1, 3, 5],
        "sum": [1, 5, 9],
        "mean": [1, 2.5, 4.5],
    }[folding]
    assert made.newest == 5
    assert values == [each.value for each in made.points]


def test_a_drawing_ends_at_round_numbers() -> None:
    drawn = drawing(chart("k", "K", "ms", "largest", points(0, 370)))
    assert drawn is not None
    assert (drawn.top, drawn.middle) == ("400 ms", "200 ms")
    # Two points, each in the middle of its half; 0 at the bottom, 370 of 400 near the top.
    assert drawn.line == "M150 120L450 9"
    assert drawn.area == "M150 120L450 9L450 120L150 120Z"
    assert [(each.x, each.width, each.text) for each in drawn.hits] == [
        (0, 300, "batch 0: 0 ms"),
        (300, 300, "batch 1: 370 ms"),
    ]


@pytest.mark.parametrize(
    ("unit", "value", "top"),
    [
        ("bytes", 900 * 1024, "1000 KiB"),
        ("bytes", 1000 * 1024, "1.5 MiB"),
        ("ms", 90_000, "2 min 0 s"),
        ("rows", 0, "1"),
        ("rows/s", 0.2, "0.3"),
    ],
)
def test_edges_are_round_in_their_unit(unit: str, value: float, top: str) -> None:
    drawn = drawing(chart("k", "K", unit, "largest", points(value)))
    assert drawn is not None
    assert drawn.top == top


def test_nothing_is_drawn_of_nothing() -> None:
    assert drawing(chart("k", "K", "ms", "largest", [])) is None
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


def test_half_of_a_few_rows_is_not_told() -> None:
    def middle(unit: str, *values: float) -> str:
        drawn = drawing(chart("k", "K", unit, "newest", [Point(n, n, n, v) for n, v in enumerate(values)]))
        assert drawn is not None
        return drawn.middle

    assert (middle("rows", 2, 2), middle("rows", 3, 3), middle("ms", 2, 2)) == ("", "2", "1.5 ms")
