"""The demo over a small day: its driver is killed, and every answer is exact."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.clock import now_ms
from holdfast.demo.coffee_shop.day import CoffeeDay
from holdfast.demo.show import CoffeeShop

pytestmark = [pytest.mark.fault, pytest.mark.spark]


def test_a_small_day_is_exact_over_the_kill(tmp_path: Path) -> None:
    notes = []
    day = CoffeeDay.make(7, customers=40, files=9)
    result = CoffeeShop(tmp_path / "shop", 7, now_ms, lambda _, __, note: notes.append(note), day).run()
    assert [(each.name, each.exact) for each in result.comparisons if not each.exact] == []
    assert len(result.comparisons) == 5
    assert result.exact
    assert result.events == day.events
    assert "driver killed with SIGKILL, recovering" in notes
