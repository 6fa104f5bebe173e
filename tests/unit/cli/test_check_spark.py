"""`holdfast check --spark`: what it prints, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import Holdfast

from golden import golden_on_disk


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    golden_on_disk("3.5/aggregate-rocksdb", tmp_path / "ck")


def test_a_spark_that_goes_on(holdfast: Holdfast) -> None:
    said = holdfast("check", "--spark", "4.2", "ck")
    assert said.returncode == 0, said.stderr
    assert "written by  Spark 3.5" in said.stdout
    assert "notes:" in said.stdout
    assert "Spark 4.2 can continue from this state (batch 11)" in said.stdout


def test_a_risk_and_a_refusal(holdfast: Holdfast) -> None:
    risk = holdfast("check", "--spark", "4.1", "ck")
    assert (risk.returncode, "risks:" in risk.stdout) == (1, True)
    refused = holdfast("check", "--spark", "3.4", "ck")
    assert (refused.returncode, "blockers:" in refused.stdout) == (2, True)
    assert "not tested with this pair" in refused.stdout


def test_json_has_every_field(holdfast: Holdfast) -> None:
    found = json.loads(holdfast("check", "--spark", "4.2", "ck", "--json").stdout)
    assert (found["verdict"], found["spark"], found["written_by"]) == ("goes on", "4.2", ["3.5"])
    assert found["findings"][0].keys() == {"what", "effect", "text", "hint", "reference"}


@pytest.mark.parametrize(
    "words",
    [
        ("job.py", "--spark", "4.2"),
        ("ck", "--spark", "4.2", "--against", "ck"),
        ("ck", "--spark", "4.2", "--deep"),
        ("ck", "--spark", "4.2", "--set", "a=b"),
    ],
)
def test_what_is_about_code_is_refused(holdfast: Holdfast, words: tuple[str, ...]) -> None:
    said = holdfast("check", *words)
    assert said.returncode == 2
    assert "--spark cannot be combined with code" in said.stderr


def test_code_is_checked_against_something(holdfast: Holdfast) -> None:
    said = holdfast("check", "job.py")
    assert said.returncode == 2
    assert "--against" in said.stderr
