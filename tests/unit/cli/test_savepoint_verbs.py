"""The verbs of savepoints: what they print, and their exit codes."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import stalled_digest
from audited import audited
from command import Holdfast, environment
from large_state import ROWS, large_checkpoint, large_rows

from golden import NAMES, golden_on_disk
from holdfast import savepoints
from holdfast.config.checks import place_word
from holdfast.jobs.registry.registry import JobRecord, Registry, job_id
from holdfast.jobs.state_home import StateHome
from holdfast.model import JobState, QueryStarted

RECORD = JobRecord(
    "shop", job_id("shop"), "job.py", "file:///c", "delete", JobState.RUNNING, None, 0, 0, None, 1
)
NAME = next(name for name in NAMES if "aggregate-format2" in name)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return golden_on_disk(NAME, tmp_path / "ck")


def told(said: subprocess.CompletedProcess[str], code: int = 0) -> Any:
    assert said.returncode == code, said.stderr
    return json.loads(said.stdout)


@pytest.mark.slow
def test_from_take_to_delete(holdfast: Holdfast, checkpoint: Path, tmp_path: Path) -> None:
    planned = told(holdfast("savepoint", "take", "./ck", "catalog", "--dry-run", "--json"))
    assert planned["dry_run"] is True
    assert not (tmp_path / "catalog").exists()
    taken = told(holdfast("savepoint", "take", "./ck", "catalog", "--label", "first", "--json"))
    assert {"savepoint", "batch_id", "files", "size_bytes", "new_bytes"} <= set(taken)
    assert (taken["batch_id"], taken["files"]) == (planned["batch_id"], planned["files"])
    place = Path(taken["savepoint"].removeprefix("file://"))
    assert place.parent == tmp_path / "catalog" / "savepoints"
    older = told(
        holdfast("savepoint", "take", "./ck", "catalog", "--batch", str(taken["batch_id"] - 1), "--json")
    )
    assert older["batch_id"] == taken["batch_id"] - 1
    [one, two] = told(holdfast("savepoint", "list", "catalog", "--json"))["savepoints"]
    assert (one["savepoint"], one["label"], two["savepoint"]) == (
        taken["savepoint"],
        "first",
        older["savepoint"],
    )
    shown = told(holdfast("savepoint", "show", str(place), "--json"))
    assert (shown["batch"], shown["label"]) == (taken["batch_id"], "first")
    assert told(holdfast("savepoint", "verify", str(place), "--json"))["ok"] is True
    assert (
        told(holdfast("restore", str(place), "new", "--dry-run", "--json"))["batch_id"] == taken["batch_id"]
    )
    assert not (tmp_path / "new").exists()
    restored = told(holdfast("restore", str(place), "new", "--json"))
    assert restored["checkpoint"] == f"file://{tmp_path}/new"
    assert (restored["batch_id"], restored["query_id"]) == (taken["batch_id"], taken["query_id"])
    assert restored["state_format"] == 2
    forked = told(holdfast("fork", str(place), "other", "--json"))
    assert forked["query_id"] != taken["query_id"]
    asked = holdfast("savepoint", "delete", str(place))
    assert (asked.returncode, "--yes" in asked.stderr) == (2, True)
    assert told(holdfast("savepoint", "delete", str(place), "--dry-run", "--json"))["kept"] == 1
    assert told(holdfast("savepoint", "delete", str(place), "--yes", "--json"))["kept"] == 1
    assert told(holdfast("savepoint", "verify", older["savepoint"], "--json"))["ok"] is True
    assert told(holdfast("savepoint", "gc", "catalog", "--json"))["files"] == 0
    assert told(holdfast("savepoint", "verify", str(place), "--json"), 3)["kind"] == "not-found"
    assert told(holdfast("checkpoint", "verify", "new", "--json"))["ok"] is True


def test_damage_is_named_and_nothing_is_made_of_it(
    holdfast: Holdfast, checkpoint: Path, tmp_path: Path
) -> None:
    taken = told(holdfast("savepoint", "take", "./ck", "catalog", "--json"))
    damaged = next(path for path in sorted((tmp_path / "catalog/objects").glob("*/*")) if path.stat().st_size)
    damaged.write_bytes(damaged.read_bytes()[:-1])
    proof = told(holdfast("savepoint", "verify", taken["savepoint"], "--json"), 6)
    assert proof["ok"] is False
    assert [each["file"] for each in proof["problems"]] == [str(damaged.relative_to(tmp_path / "catalog"))]
    assert "what" in proof["problems"][0]
    for verb in ("restore", "fork"):
        assert told(holdfast(verb, taken["savepoint"], "new", "--json"), 6)["kind"] == "corrupt"
    assert not (tmp_path / "new").exists()


def test_people_read_it(holdfast: Holdfast, checkpoint: Path) -> None:
    said = holdfast("savepoint", "take", "./ck", "catalog", "--label", "before the upgrade")
    savepoint = said.stdout.strip()
    assert savepoint.startswith("file://")
    assert "new" in said.stderr
    assert "before the upgrade" in holdfast("savepoint", "list", "catalog").stdout
    shown = holdfast("savepoint", "show", savepoint, "--files", "--confs").stdout
    for part in ("0 aggregate", "offsets/11", "spark.sql.shuffle.partitions", "before the upgrade"):
        assert part in shown
    assert holdfast("savepoint", "verify", savepoint).stdout.startswith("whole (batch 11")
    planned = holdfast("restore", savepoint, "new", "--claim", "--dry-run")
    assert f"the savepoint would be deleted afterwards: {savepoint}" in planned.stderr
    made = holdfast("restore", savepoint, "new", "--claim")
    assert (
        made.returncode,
        "continues with batch 12" in made.stderr and "checkpointFormatVersion=2" in made.stderr,
    ) == (0, True)
    assert len(holdfast("savepoint", "list", "catalog").stdout.splitlines()) == 1


def test_rows_are_proved(holdfast: Holdfast, checkpoint: Path) -> None:
    taken = told(holdfast("savepoint", "take", "./ck", "catalog", "--deep", "--json"))
    proof = told(holdfast("savepoint", "verify", taken["savepoint"], "--deep", "--json"))
    assert (proof["ok"], proof["compared"]) == (True, 1)
    [state] = proof["states"]
    assert (state["state"], state["rows"], state["internal"]) == ("default", 10, False)
    said = holdfast("savepoint", "verify", taken["savepoint"], "--deep").stdout
    assert "10 rows of 1 state counted and hashed; 1 state compared" in said
    assert "without --deep" not in said
    assert told(holdfast("savepoint", "verify", taken["savepoint"], "--json"))["states"] is None


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More state than a take reads; never changed."""
    return large_checkpoint(tmp_path_factory.mktemp("large") / "ck", large_rows())


@pytest.mark.slow
def test_rows_of_large_state_are_proved(holdfast: Holdfast, large: Path, tmp_path: Path) -> None:
    taken = told(holdfast("savepoint", "take", str(large), "catalog", "--no-digest", "--json"))
    uri = taken["savepoint"]
    assert taken["content"] == "pending"
    files = {file: file.read_bytes() for file in (tmp_path / "catalog").rglob("*") if file.is_file()}
    said = holdfast("savepoint", "verify", uri, "--deep")
    assert said.returncode == 0
    assert "counted and hashed, but not compared, because the digests are pending" in said.stdout
    assert f"holdfast savepoint digest {place_word(uri)}" in said.stdout
    assert "pending" in holdfast("savepoint", "list", "catalog").stdout
    assert told(holdfast("savepoint", "digest", "catalog", "--dry-run", "--json"))["dry_run"] is True
    assert {file: file.read_bytes() for file in (tmp_path / "catalog").rglob("*") if file.is_file()} == files

    made = told(holdfast("savepoint", "digest", "catalog", "--json"))["savepoints"]
    assert [(each["savepoint"], each["content"], each["made"]) for each in made] == [(uri, "recorded", True)]
    rows = made[0]["rows"]
    assert rows > ROWS
    assert told(holdfast("savepoint", "digest", uri, "--json"))["made"] is False
    assert told(holdfast("savepoint", "digest", "nowhere", "--json"), 3)["kind"] == "not-found"
    proof = told(holdfast("savepoint", "verify", uri, "--deep", "--json"))
    assert (proof["ok"], proof["content"], proof["compared"]) == (True, "compared", 1)
    assert [each["rows"] for each in proof["recorded"]] == [rows]
    shown = told(holdfast("savepoint", "show", uri, "--json"))
    assert (shown["content"], [each["rows"] for each in shown["states"]]) == ("recorded", [rows])
    assert f"{rows:,}" in holdfast("savepoint", "show", uri).stdout


@pytest.mark.slow
def test_a_take_makes_the_digests(holdfast: Holdfast, large: Path) -> None:
    taken = told(holdfast("savepoint", "take", str(large), "catalog", "--json"))
    assert taken["content"] == "recorded"
    proof = told(holdfast("savepoint", "verify", taken["savepoint"], "--deep", "--json"))
    assert proof["content"] == "compared"


@pytest.mark.slow
def test_ctrl_c_in_the_digests_leaves_a_savepoint(large: Path, tmp_path: Path, home: Path) -> None:
    with subprocess.Popen(
        [*stalled_digest.PROGRAM, "savepoint", "take", str(large), "catalog"],
        cwd=tmp_path,
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        uri = process.stdout.readline().strip()
        assert any(line.startswith("digesting") for line in process.stderr)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert "Traceback" not in said
    assert process.returncode == 130, said
    assert "the savepoint is whole, but its digests are pending" in said
    proof = savepoints.verify(uri)
    assert (proof.ok, proof.content) == (True, "pending")


def test_a_label_is_given_later(holdfast: Holdfast, checkpoint: Path, tmp_path: Path) -> None:
    uri = savepoints.take(checkpoint, tmp_path / "catalog").uri
    planned = told(holdfast("savepoint", "label", uri, "before the upgrade", "--dry-run", "--json"))
    assert (planned["dry_run"], planned["before"], planned["label"]) == (True, None, "before the upgrade")
    assert savepoints.show(uri).label is None
    change = told(holdfast("savepoint", "label", uri, "before the upgrade", "--json"))
    assert (change["label"], "@" in change["who"]) == ("before the upgrade", True)
    shown = told(holdfast("savepoint", "show", uri, "--json"))
    assert (shown["label"], len(shown["labels"])) == ("before the upgrade", 1)
    assert "before the upgrade" in holdfast("savepoint", "list", "catalog").stdout
    assert savepoints.verify(uri).ok
    for words in ((), ("x", "--remove"), ("two\nlines",)):
        assert told(holdfast("savepoint", "label", uri, *words, "--json"), 2)["kind"] == "invalid"
    said = holdfast("savepoint", "label", uri, "--remove").stdout
    assert "no label (before: before the upgrade)" in said
    assert savepoints.show(uri).label is None
    savepoints.delete(uri)
    assert told(holdfast("savepoint", "label", uri, "late", "--json"), 3)["kind"] == "not-found"


def test_two_states_key_by_key(holdfast: Holdfast, checkpoint: Path) -> None:
    taken = told(holdfast("savepoint", "take", "./ck", "catalog", "--json"))["savepoint"]
    found = told(holdfast("savepoint", "diff", "./ck@10", taken, "--samples", "1", "--json"))
    assert found["same"] is False
    [state] = found["states"]
    assert (state["first_rows"], state["added"], state["removed"], state["changed"]) == (10, 0, 0, 10)
    [sample] = state["samples"]
    said = holdfast("savepoint", "diff", "./ck@10", taken).stdout
    assert f'~ {{"customer": "{sample["key"]["customer"]}"}}  {{"count": 11,' in said
    assert said.splitlines()[-1] == "the states differ"
    assert holdfast("savepoint", "diff", "./ck", taken).stdout.splitlines()[-1] == "the states are the same"
    by_files = told(holdfast("savepoint", "diff", taken, taken, "--files", "--json"))
    assert by_files["same_state"] is True
    assert told(holdfast("savepoint", "diff", "./ck@99", taken, "--json"), 3)["kind"] == "not-found"
    assert told(holdfast("savepoint", "diff", "nothing", taken, "--json"), 3)["kind"] == "not-found"
    assert told(holdfast("savepoint", "diff", "./ck", taken, "--files", "--json"), 2)["kind"] == "invalid"


def test_a_job_stands_for_its_checkpoint(holdfast: Holdfast, home: Path, checkpoint: Path) -> None:
    home.mkdir()
    registry = Registry(StateHome(home).registry)
    registry.start_job(RECORD)
    number = registry.start_attempt(RECORD.name, 1, 0, recovers=False)
    one = QueryStarted("one", "id", "run", f"file://{checkpoint}", "none")
    registry.queries_started(RECORD.name, number, [one], 0)
    taken = told(holdfast("savepoint", "take", RECORD.name, "catalog", "--json"))
    assert taken["checkpoint"] == f"file://{checkpoint}"
    two = QueryStarted("two", "id", "run", "file:///elsewhere", "none")
    registry.queries_started(RECORD.name, number, [one, two], 0)
    refused = told(holdfast("savepoint", "take", RECORD.name, "catalog", "--json"), 2)
    assert "2 queries" in refused["error"]
    assert str(checkpoint) in refused["hint"]


def test_what_is_neither_a_directory_nor_a_job(holdfast: Holdfast) -> None:
    refused = told(holdfast("savepoint", "take", "nothing", "catalog", "--json"), 3)
    assert "no directory or job" in refused["error"]
    assert told(holdfast("savepoint", "show", "catalog", "--json"), 2)["kind"] == "invalid"
    for verb in ("list", "gc", "digest"):
        refused = told(holdfast("savepoint", verb, "catalog", "--json"), 3)
        assert refused["error"] == "no directory or job is named 'catalog'"
    assert (
        told(holdfast("savepoint", "list", "./catalog", "--json"), 3)["error"]
        == "the directory is not a savepoint catalog"
    )


@pytest.mark.slow
def test_nothing_is_started_and_no_spark_loaded(checkpoint: Path, tmp_path: Path) -> None:
    taken = savepoints.take(checkpoint, tmp_path / "catalog").uri
    commands = [
        ("savepoint", "list", str(tmp_path / "catalog")),
        ("restore", taken, str(tmp_path / "new")),
        ("savepoint", "take", str(checkpoint), str(tmp_path / "another")),
        ("savepoint", "verify", taken, "--deep"),
        ("savepoint", "diff", taken, str(checkpoint)),
    ]
    found = audited(commands, tmp_path)
    assert [(audit.code, audit.started) for audit in found] == [(0, ())] * 5
    # Sums over rows take numpy; nothing takes Spark, or Arrow.
    assert [audit.heavy for audit in found] == [(), (), *[("numpy",)] * 3]


@pytest.mark.slow
def test_other_partitions(holdfast: Holdfast, holdfast_at_once: Holdfast, tmp_path: Path) -> None:
    """The memory provider's, since that takes no Spark."""
    golden_on_disk("4.2/aggregate-memory", tmp_path / "heap")
    planned = told(holdfast("rescale", "heap", "--partitions", "3", "--dry-run", "--json"))
    assert (planned["partitions_before"], planned["partitions"], planned["starts_spark"]) == ([2], 3, False)
    assert planned["checkpoint"] == f"file://{tmp_path}/heap-p3"
    assert {each.name for each in tmp_path.iterdir()} >= {"heap"}
    assert not (tmp_path / "heap-p3").exists()
    usage = planned["usage"]
    assert (usage["checkpoint"], usage["processes"]["processes"]) == (f"file://{tmp_path}/heap", [])
    said = holdfast("rescale", "heap", "--partitions", "3")
    assert (
        said.returncode,
        "--confirm-stopped" in said.stderr,
        "newest committed batch: " in said.stderr,
    ) == (
        4,
        True,
        True,
    )
    assert not (tmp_path / "heap-p3").exists()
    made = told(holdfast_at_once("rescale", "heap", "--partitions", "3", "--confirm-stopped", "--json"))
    assert (made["checkpoint"], made["rows"]) == (planned["checkpoint"], 10)
    assert made["batch_id"] == planned["from_batch"]
    assert told(holdfast("checkpoint", "verify", "heap-p3", "--json"))["ok"] is True
    said = holdfast_at_once("rescale", "heap", "five", "--partitions", "5", "--confirm-stopped")
    assert said.stdout == f"file://{tmp_path}/five\n"
    assert "2 to 5 partitions: 10 rows, verified unchanged" in said.stderr
    assert told(holdfast("rescale", "heap", "five", "--partitions", "5", "--json"), 4)["kind"] == "conflict"
    assert holdfast("rescale", "heap", "--partitions", "0").returncode == 2
    assert holdfast("rescale", "nothing", "--partitions", "2").returncode == 3
    assert not [each for each in tmp_path.iterdir() if each.name.startswith(".holdfast-")]
