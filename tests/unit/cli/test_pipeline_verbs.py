"""Verbs over the storage of a declarative pipeline answer for all its flows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runner import cli_in
from command import Holdfast

from golden import files_on_disk, golden_files

LABELS = [
    "spark_catalog.default.copies/copies",
    "spark_catalog.default.first_orders/first_orders",
    "spark_catalog.default.totals/by_minute",
]


@pytest.fixture
def cli(tmp_path: Path) -> Holdfast:
    files_on_disk(golden_files("pipeline-4.2"), tmp_path / "storage")
    return cli_in(tmp_path, tmp_path / "home")


@pytest.mark.parametrize("verb", ["show", "verify", "history", "lint", "offsets show"])
def test_a_verb_answers_as_for_each_checkpoint(cli: Holdfast, verb: str) -> None:
    done = cli(*verb.split(), "storage", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert [f"{flow['table']}/{flow['flow']}" for flow in answer["flows"]] == LABELS
    for flow in answer["flows"]:
        alone = cli(*verb.split(), flow["checkpoint"], "--json")
        assert json.loads(alone.stdout) == flow["result"]
    text = cli(*verb.split(), "storage").stdout
    assert "flow by_minute of table spark_catalog.default.totals, version 1" in text


def test_damage_of_one_flow_is_reported_and_the_others_are_still_checked(
    cli: Holdfast, tmp_path: Path
) -> None:
    flow = (
        tmp_path / "storage" / "_checkpoints" / "spark_catalog" / "default" / "first_orders" / "first_orders"
    )
    (flow / "0" / "metadata").write_text("{")
    done = cli("verify", "storage", "--json")
    assert done.returncode == 6
    assert [flow["result"]["ok"] for flow in json.loads(done.stdout)["flows"]] == [True, False, True]
    (flow / "0" / "offsets" / "3").write_text("v1")
    done = cli("show", "storage", "--json")
    assert done.returncode == 6
    results = [flow["result"] for flow in json.loads(done.stdout)["flows"]]
    assert [result.get("kind") for result in results] == [None, "corrupt", None]


def test_savepoints_of_all_flows_have_a_catalog_each(cli: Holdfast, tmp_path: Path) -> None:
    done = cli("savepoint", "take", "storage", "saved", "--label", "nightly", "--json")
    assert done.returncode == 0, done.stderr
    for label in LABELS:
        assert cli("verify", f"saved/{label}@nightly").returncode == 0
    assert cli("take", "storage").returncode == 0
    assert sorted(path.name for path in (tmp_path / "storage.savepoints").iterdir()) == [
        label.partition("/")[0] for label in LABELS
    ]
    refused = cli("savepoint", "take", "storage", "saved", "--every", "5s")
    assert refused.returncode == 2
    assert "--every" in refused.stderr


def test_doctor_shows_what_a_full_refresh_discards(cli: Holdfast) -> None:
    done = cli("doctor", "storage", "--json")
    answer = json.loads(done.stdout)
    assert len(answer["health"]) == 3
    assert [(one["flow"], one["version"]) for one in answer["full_refresh"]] == [
        ("copies", 0),
        ("first_orders", 0),
        ("by_minute", 1),
    ]
    text = cli("doctor", "storage").stdout
    assert "--full-refresh-all" in text
    assert "READ AGAIN UP TO" in text


def test_a_version_without_a_run_is_named_and_left_out(cli: Holdfast, tmp_path: Path) -> None:
    flow = tmp_path / "storage" / "_checkpoints" / "spark_catalog" / "default" / "totals" / "by_minute"
    (flow / "2").mkdir()
    done = cli("verify", "storage", "--json")
    assert done.returncode == 0
    assert [flow["result"] is None for flow in json.loads(done.stdout)["flows"]] == [False, False, True]
    assert "no run since its full refresh" in cli("verify", "storage").stdout
    assert len(json.loads(cli("doctor", "storage", "--json").stdout)["health"]) == 2


def test_verbs_for_one_checkpoint_name_the_flows(cli: Holdfast) -> None:
    done = cli("state", "list", "storage")
    assert done.returncode == 3
    assert "spark_catalog.default.totals/by_minute" in done.stderr
    assert cli("lint", "storage", "--format", "sarif").returncode == 2
