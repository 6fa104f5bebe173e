"""The first page: its figures are measured, and its blocks are real output."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_it_has_three_screens() -> None:
    assert len(README.splitlines()) <= 170


def test_its_figures_are_measured_ones() -> None:
    [paragraph] = re.findall(r"^165,800 .*?(?=\n\n)", README, re.MULTILINE | re.DOTALL)
    measured = (ROOT / "docs" / "measurements.md").read_text(encoding="utf-8")
    figures = re.findall(r"\d[\d,.]*\d", paragraph)
    assert len(figures) == 3
    for figure in figures:
        assert figure in measured, figure
    for command in re.findall(r"`(holdfast bench \w+)", paragraph):
        assert command in measured


def test_the_block_of_doctor_is_what_it_prints() -> None:
    [block] = re.findall(r"^<!-- shown: .*-->\n```text\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    scene = (ROOT / "tests/golden/output/doctor-checkpoint.txt").read_text(encoding="utf-8")
    assert scene.startswith("$ holdfast doctor orders\n" + block)
