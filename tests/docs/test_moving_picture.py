"""The moving picture of the README: how it is drawn, and that a job does what it shows."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import moving_picture
import pytest
from moving_picture import Line, Take

SVG = "{http://www.w3.org/2000/svg}"


def test_around_the_kill_it_keeps_the_time_and_then_it_waits() -> None:
    lines = [
        Line(50.0, True, "$ holdfast run visits.py"),
        Line(99.0, True, "visits: visits batch 7: 3 rows in 0.2 s"),
        Line(100.0, False, "$ kill -9 1"),
        Line(101.5, True, "visits: visits batch 8: 3 rows in 0.2 s"),
        Line(101.5, True, "visits: recovered in 1.4 s"),
        Line(102.5, True, "visits: visits batch 9: 3 rows in 0.2 s"),
        Line(102.6, False, "$ holdfast state get visits ann"),
        Line(103.0, False, "value"),
        Line(103.5, True, "visits: visits batch 10: 3 rows in 0.2 s"),
    ]
    shown = moving_picture.paced(Take(lines, killed=100.0, recovered=102.5))
    assert [line.at for line in shown] == [0.0, 2.0, 3.0, 4.5, 4.5, 5.5, 9.5, 9.5]
    drawn = ElementTree.fromstring(moving_picture.picture(shown))
    frames = drawn.findall(f"{SVG}g")
    assert len(frames) == 6
    assert ["".join(row.itertext()) for row in frames[-1]][-1] == "value"


def test_the_committed_picture_is_one_of_a_recovery() -> None:
    drawn = ElementTree.parse(moving_picture.PICTURE).getroot()
    last = ["".join(row.itertext()) for row in drawn.findall(f"{SVG}g")[-1]]
    assert [line.split()[1:4] for line in last if line.startswith("$ ")][1:] == [
        ["holdfast", "state", "get"],
        ["holdfast", "state", "diff"],
    ]
    assert drawn.find(f"{SVG}title") is not None


@pytest.mark.spark
@pytest.mark.fault
def test_a_job_does_what_it_shows(tmp_path: Path) -> None:
    take = moving_picture.record(tmp_path)
    batches = [
        (int(match[1]), line.at)
        for line in take.lines
        if (match := re.search(r"batch (\d+): ", line.text)) is not None and line.upper
    ]
    assert [number for number, _ in batches] == sorted({number for number, _ in batches})
    assert sum(at > take.killed for _, at in batches) >= 2
    told = "\n".join(line.text for line in take.lines if not line.upper)
    assert re.search(r'"visits": \d+', told), told
