"""When state will be full."""

from __future__ import annotations

import random

import pytest

from holdfast.observe.growth import full_in_ms, growth_per_ms

MINUTE = 60_000


def line(points: int, per_minute: float, start: float = 0.0) -> list[tuple[int, float]]:
    return [(each * MINUTE, start + per_minute * each) for each in range(points)]


def test_a_straight_line_reaches_its_limit_when_worked_out() -> None:
    # 100 at 0, 5 more each minute: 145 at minute 9, 200 eleven minutes later.
    assert full_in_ms(line(10, 5.0, 100.0), 200.0) == pytest.approx(11 * MINUTE)


def test_what_is_full_is_full_now() -> None:
    assert full_in_ms([(0, 10.0)], 10.0) == 0.0


@pytest.mark.parametrize(
    "points",
    [
        [],
        line(9, 5.0),  # too few
        [(each * 1000, float(each)) for each in range(50)],  # 49 seconds
        line(20, 0.0, 7.0),  # level
        line(20, -1.0, 100.0),  # shrinks
    ],
)
def test_nothing_is_foretold_of_too_little_or_of_what_does_not_grow(
    points: list[tuple[int, float]],
) -> None:
    assert full_in_ms(points, 1e6) is None


def test_outliers_do_not_bend_the_line() -> None:
    points = line(40, 5.0, 100.0)
    for index in (3, 17, 38, 39):
        points[index] = (points[index][0], 10_000.0 if index % 2 else 0.0)
    points[39] = (points[39][0], 0.0)
    # On the line it is 295 at minute 39; 1000 is 141 minutes further.
    assert full_in_ms(points, 1000.0) == pytest.approx(141 * MINUTE, rel=0.02)


def test_a_saw_tooth_does_not_grow() -> None:
    points = [(each * MINUTE, 100.0 + each % 10) for each in range(60)]
    assert growth_per_ms(points) is None


def test_noise_does_not_grow() -> None:
    rng = random.Random(7)
    points = [(each * MINUTE, 1000.0 + rng.uniform(-50, 50)) for each in range(200)]
    assert growth_per_ms(points) is None


def test_noise_on_a_line_gives_the_line() -> None:
    rng = random.Random(11)
    points = [(each * MINUTE, 1000.0 + 10.0 * each + rng.uniform(-20, 20)) for each in range(1000)]
    slope = growth_per_ms(points)
    assert slope is not None
    assert slope * MINUTE == pytest.approx(10.0, rel=0.02)
