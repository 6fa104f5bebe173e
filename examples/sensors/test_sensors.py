"""Statistics of sensors, tried without Spark, with and without a split."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest
from sensors import READINGS, STATISTICS, Statistics

from holdfast.testing import Harness

DATA = Path(__file__).parent / "data" / "readings"


@pytest.mark.parametrize("split_rows", [None, 1, 7])
def test_the_result_is_the_same_however_a_sensor_is_split(split_rows: int | None) -> None:
    sensors = Harness(Statistics(), by="sensor", events=READINGS, output=STATISTICS, split_rows=split_rows)
    readings: dict[str, list[int]] = {}
    found: dict[str, dict[str, object]] = {}
    for file in sorted(DATA.iterdir()):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        for row in rows:
            readings.setdefault(row["sensor"], []).append(row["millicelsius"])
        found |= {row["sensor"]: row for row in sensors.send(*rows)}
    assert found.keys() == readings.keys()
    for sensor, celsius in readings.items():
        row = found[sensor]
        assert (row["readings"], row["coldest"], row["hottest"]) == (
            len(celsius),
            min(celsius),
            max(celsius),
        )
        assert row["mean"] == pytest.approx(statistics.mean(celsius))
