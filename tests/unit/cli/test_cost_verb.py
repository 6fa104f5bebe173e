"""`holdfast cost`: what it prints, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import Holdfast

from golden import golden_on_disk
from holdfast import savepoints
from holdfast.jobs.registry.registry import JobRecord, Registry, note_of
from holdfast.model import QueryStarted

PRICES = """
currency = "EUR"
local = { price = 1000000, per = "GB-month" }
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    golden_on_disk("4.2/aggregate-format2", tmp_path / "ck")


def test_a_checkpoint_is_told_by_state(holdfast: Holdfast) -> None:
    said = holdfast("cost", "ck")
    assert said.returncode == 0, said.stderr
    assert "0 aggregate" in said.stdout
    assert "requests    none (not on object storage)" in said.stdout
    assert "per month" in said.stdout


def test_json_has_every_figure(holdfast: Holdfast) -> None:
    found = json.loads(holdfast("cost", "ck", "--json").stdout)
    (state,) = found["states"]
    assert state["operator_id"] == 0
    assert state["stores"] == 2
    assert found["checkpoint_bytes"] > state["checkpoint_bytes"] + state["retained_bytes"] > 0
    assert found["prices"]["local"] == 0.1
    assert {change["kind"] for change in found["changes"]} >= {"ttl"}


def test_prices_of_a_file_count(holdfast: Holdfast) -> None:
    Path("prices.toml").write_text(PRICES)
    found = json.loads(holdfast("cost", "ck", "--prices", "prices.toml", "--json").stdout)
    bytes_ = found["local_bytes"] + found["checkpoint_bytes"]
    assert found["money"]["total"] == pytest.approx(bytes_ / 1000)
    assert "EUR" in holdfast("cost", "ck", "--prices", "prices.toml").stdout


def test_a_unit_that_nobody_knows_is_refused(holdfast: Holdfast) -> None:
    Path("prices.toml").write_text('s3 = { price = 1, per = "parsec" }')
    said = holdfast("cost", "ck", "--prices", "prices.toml")
    assert said.returncode == 2
    assert said.stderr.startswith("error: unknown unit in the price file [HF-E")
    assert "prices.toml: s3.per" in said.stderr


def test_a_plan_is_forecast(holdfast: Holdfast) -> None:
    said = holdfast("cost", "--rate", "100", "--keys", "1000", "--partitions", "4", "--value-bytes", "52")
    assert said.returncode == 0, said.stderr
    assert "assumed: all keys are equally likely" in said.stdout
    words = ("--rate", "100", "--keys", "1000", "--value-bytes", "52", "--interval", "10s", "--json")
    found = json.loads(holdfast("cost", *words).stdout)
    assert found["state_bytes"] == 1000 * (16 + 52 + 48)
    assert found["plan"]["interval_ms"] == 10_000


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), 2),
        (("--rate", "5"), 2),
        (("ck", "--rate", "5", "--keys", "5"), 2),
        (("nowhere/at-all",), 3),
        (("ck", "--prices", "nofile.toml"), 3),
    ],
)
def test_bad_input_has_its_exit_code(holdfast: Holdfast, words: tuple[str, ...], code: int) -> None:
    said = holdfast("cost", *words)
    assert said.returncode == code, said.stderr
    assert said.stderr.startswith("error: ")


def savepoints_line(holdfast: Holdfast, *words: str) -> str:
    said = holdfast("cost", *words)
    assert said.returncode == 0, said.stderr
    (line,) = [line for line in said.stdout.splitlines() if line.startswith("savepoints ")]
    return line.removeprefix("savepoints").strip()


def test_savepoints_are_counted_where_they_are_known_to_be(holdfast: Holdfast, tmp_path: Path) -> None:
    """A directory without any is named: there may be some elsewhere."""
    none = savepoints_line(holdfast, "ck")
    assert none.startswith("none in ck.savepoints")
    assert "--savepoints" in none
    for catalog in ("one", "two"):
        savepoints.take("ck", catalog, deep=True)
    assert savepoints_line(holdfast, "ck").startswith("none in ck.savepoints")
    assert savepoints_line(holdfast, "ck", "--savepoints", "one").startswith("1, ")
    both = ("ck", "--savepoints", "one", "--savepoints", "two")
    assert savepoints_line(holdfast, *both).startswith("2, ")
    found = json.loads(holdfast("cost", *both, "--json").stdout)
    assert (found["savepoints"], found["catalogs"]) == (
        2,
        [f"file://{tmp_path}/one", f"file://{tmp_path}/two"],
    )
    missing = savepoints_line(holdfast, "ck", "--savepoints", "none-yet")
    assert missing.startswith("none in none-yet")


def test_savepoints_of_a_job_are_found_by_its_checkpoint(
    holdfast: Holdfast, tmp_path: Path, home: Path
) -> None:
    """Those that its state home knows of, and those beside the checkpoint."""
    registry = Registry(home / "registry.db")
    home.mkdir()
    uri = f"file://{tmp_path}/ck"
    registry.start_job(JobRecord.begun("shop", "shop.py", uri, "retain", 1, None))
    number = registry.start_attempt("shop", 1, 1, recovers=False)
    registry.queries_started(
        "shop", number, [QueryStarted("shop", "id", "run", uri, "exactly once: files")], 2
    )
    taken = savepoints.take("ck", "elsewhere")
    registry.add_savepoint("shop", note_of("shop", taken.uri, taken.manifest, at_ms=3, took_ms=1))
    savepoints.take("ck", "ck.savepoints")
    for name in ("ck", "shop"):
        assert savepoints_line(holdfast, name).startswith("2, ")
    assert savepoints_line(holdfast, "shop", "--savepoints", "elsewhere").startswith("1, ")
    assert holdfast("cost", taken.uri, "--savepoints", "elsewhere").returncode == 2
