"""What a notebook shows of results."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import holdfast as hf
from golden import golden_on_disk
from holdfast.errors import Unsupported
from holdfast.notebook import fields, of_document, sparkline, table

NAME = "4.2/aggregate-format2"


def test_a_line_goes_from_the_least_to_the_most() -> None:
    # 160 pixels for four points; 22 of the 24 pixels of height for 0 to 11.
    line = sparkline([0, 11, 5.5, 0], "rows")
    assert 'points="0.0,23.0 53.3,1.0 106.7,12.0 160.0,23.0"' in line
    assert "<title>rows: 0 to 11</title>" in line


def test_a_level_line_and_too_few_points() -> None:
    assert 'points="0.0,23.0 80.0,23.0 160.0,23.0"' in sparkline([7, 7, 7], "rows")
    assert sparkline([1, 2], "rows") == ""


def test_units_moments_and_verdicts() -> None:
    shown = of_document(
        "SomeReport",
        {"size_bytes": 2560, "took_ms": 1500, "at_ms": 1_772_697_600_000, "rows": 12345, "ok": False},
    )
    assert "<b>Some report</b>" in shown
    for text in ("2.5 KiB", "1.5 s", "2026-03-05 08:00:00Z", "12,345", '<b style="color:#cf222e">no</b>'):
        assert text in shown


def test_what_a_checkpoint_says_is_shown_and_never_interpreted() -> None:
    bad = '<script>alert("x")</script>'
    for shown in (
        fields({bad: bad}),
        table([{bad: bad}]),
        table([{bad: bad}], columns=True),
        of_document(bad, {"findings": [{"seen": bad}], "nested": {"a": {bad: bad}}}),
        sparkline([1, 2, 3], bad),
    ):
        assert "<script" not in shown
        assert "&lt;script" in shown.lower()


def test_long_tables_and_values_are_cut() -> None:
    shown = table([{"n": number} for number in range(30)])
    assert shown.count("<tr>") == 21
    assert "10 more" in shown
    assert len(fields({"text": "x" * 10_000})) < 600


def test_a_checkpoint_shows_its_health_and_the_course_of_its_batches(tmp_path: Path) -> None:
    checkpoint = hf.checkpoint(golden_on_disk(NAME, tmp_path / "ck"), home=tmp_path / "home")
    shown = checkpoint._repr_html_()
    assert "Health" in shown
    # The files of the copy have one time, which leaves no durations.
    assert shown.count("<svg") == 1
    assert "New bytes of batches" in shown
    assert repr(checkpoint) == f"hf.checkpoint('file://{tmp_path}/ck')"


def test_rows_of_a_state_as_tables(tmp_path: Path) -> None:
    checkpoint = hf.checkpoint(golden_on_disk(NAME, tmp_path / "ck"), home=tmp_path / "home")
    rows = checkpoint.state("aggregate")
    table_of_rows = rows.to_arrow()
    # Ten customers, c0 to c9; each of the twelve batches had one event of each.
    assert sorted(table_of_rows["customer"].to_pylist()) == [f"c{number}" for number in range(10)]
    assert set(table_of_rows["count"].to_pylist()) == {12}
    assert len(rows.to_pandas()) == 10
    assert rows.head(3).num_rows == 3
    assert rows._repr_html_().count("<tr>") == 11


def test_polars(tmp_path: Path) -> None:
    pytest.importorskip("polars", reason="polars is not installed")
    rows = hf.checkpoint(golden_on_disk(NAME, tmp_path / "ck"), home=tmp_path / "home").state("aggregate")
    assert rows.to_polars().height == 10


def test_without_polars_the_error_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.extras.find_spec", lambda _: None)
    states = hf.state(golden_on_disk(NAME, tmp_path / "ck"))
    monkeypatch.setattr("holdfast.at_rest.state_api.StatesAtRest.pick", lambda *_: None)
    with pytest.raises(Unsupported) as refused:
        states.state("aggregate").to_polars()
    assert refused.value.hint == "run `pip install polars`"


def test_no_link_and_no_script_comes_from_elsewhere(tmp_path: Path) -> None:
    checkpoint = hf.checkpoint(golden_on_disk(NAME, tmp_path / "ck"), home=tmp_path / "home")
    shown = checkpoint._repr_html_() + checkpoint.states()._repr_html_() + checkpoint.verify()._repr_html_()
    assert not re.search(r"<(script|link|img|iframe|a)\b|url\(|http", shown)
