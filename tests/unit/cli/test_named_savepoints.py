"""Savepoints by their labels, in every verb that takes one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from command import Holdfast

from golden import NAMES, golden_on_disk
from holdfast import savepoints

NAME = next(name for name in NAMES if "aggregate-format2" in name)
JOB = "import holdfast as hf\n@hf.job(name='one', checkpoint='c')\ndef one(spark): ...\n"
# Verbs by what they say of the savepoint that they are given; `SP` stands for it.
VERBS = {
    "savepoint show SP": "id",
    "savepoint verify SP": "savepoint",
    "savepoint digest SP": "savepoint",
    "savepoint label SP other --dry-run": "savepoint",
    "savepoint delete SP --dry-run": "savepoint",
    "restore SP made": "savepoint",
    "fork SP made": "savepoint",
    "rescale SP --partitions 3 --dry-run": "source",
    "state migrate SP --backend memory --dry-run": "source",
    "state list SP": "place",
    "state edit SP --delete --key c1 --dry-run": "savepoint",
    "drill SP": "savepoint",
}


def told(said: subprocess.CompletedProcess[str], code: int = 0) -> Any:
    assert said.returncode == code, said.stderr
    return json.loads(said.stdout)


@pytest.fixture
def taken(tmp_path: Path) -> str:
    """A savepoint that is labelled `before the move`, between others."""
    checkpoint = golden_on_disk(NAME, tmp_path / "ck")
    savepoints.take(checkpoint, tmp_path / "sp", label="twice")
    uri = savepoints.take(checkpoint, tmp_path / "sp", label="before the move").uri
    savepoints.take(checkpoint, tmp_path / "sp", label="twice")
    (tmp_path / "job.py").write_text(JOB)
    return uri


@pytest.mark.parametrize(("verb", "field"), VERBS.items())
@pytest.mark.slow
def test_a_label_stands_for_its_savepoint(holdfast: Holdfast, taken: str, verb: str, field: str) -> None:
    words = ["sp@before the move" if word == "SP" else word for word in verb.split()]
    found = told(holdfast(*words, "--json"))[field]
    assert found.rpartition("/")[2] == taken.rpartition("/")[2]


@pytest.mark.parametrize("verb", ["get", "scan", "history", "explain"])
@pytest.mark.slow
def test_state_of_a_labelled_savepoint(holdfast: Holdfast, taken: str, verb: str) -> None:
    words = ("aggregate",) if verb == "scan" else ("aggregate", "c1")
    assert holdfast("state", verb, "sp@before the move", *words, "--json").stdout == (
        holdfast("state", verb, taken, *words, "--json").stdout
    )


@pytest.mark.slow
def test_two_labels_are_compared(holdfast: Holdfast, taken: str) -> None:
    found = told(holdfast("savepoint", "diff", "sp@before the move", "ck@10", "--json"))
    assert (found["first"], found["same"]) == (taken, False)
    by_files = holdfast("savepoint", "diff", "sp@before the move", taken, "--files")
    assert by_files.stdout.splitlines()[-1] == "the state files are the same"


@pytest.mark.slow
def test_a_run_starts_from_a_label(holdfast: Holdfast, taken: str) -> None:
    for given, query in (("sp@before the move", ""), ("one=sp@before the move", "one")):
        said = holdfast("run", "job.py", "--dry-run", "--json", "-s", given)
        assert told(said)["savepoints"] == {query: taken}
    savepoints.label(taken, "a=b")
    assert told(holdfast("run", "job.py", "--dry-run", "--json", "-s", "sp@a=b"))["savepoints"] == {"": taken}


@pytest.mark.parametrize(
    ("name", "code", "fact"),
    [
        ("sp@twice", 2, "2 savepoints have this label"),
        ("sp@nope", 3, "no savepoint in this catalog has the label 'nope'"),
        ("sp@12", 2, "invalid savepoint address"),
        ("ck@nope", 2, "invalid savepoint address"),
    ],
)
@pytest.mark.parametrize(
    "verb",
    ["restore SP made", "savepoint delete SP --yes", "run job.py -s SP --dry-run", "savepoint show SP"],
)
@pytest.mark.slow
def test_what_names_no_savepoint_or_several_is_refused(
    holdfast: Holdfast, taken: str, tmp_path: Path, verb: str, name: str, code: int, fact: str
) -> None:
    said = holdfast(*(name if word == "SP" else word for word in verb.split()))
    assert (said.returncode, said.stdout) == (code, "")
    assert said.stderr.startswith(f"error: {fact} [HF-E")
    assert not (tmp_path / "made").exists()
    assert len(savepoints.list(tmp_path / "sp")) == 3


def test_the_error_says_what_there_is(holdfast: Holdfast, taken: str, tmp_path: Path) -> None:
    first, _, third = (listed.savepoint_id for listed in savepoints.list(tmp_path / "sp"))
    several = told(holdfast("savepoint", "show", "sp@twice", "--json"), 2)
    assert several["found"] == f"{third}, {first}"
    assert f"/sp/{third}" in several["hint"]
    unknown = told(holdfast("check", "job.py", "--against", "sp@nope", "--json"), 3)
    assert unknown["found"] == "the labels 'twice', 'before the move'"


@pytest.mark.slow
def test_a_label_that_cannot_name_is_noted(holdfast: Holdfast, taken: str) -> None:
    for label, why in (("12", "digits"), ("release/2", "contain / or @")):
        said = holdfast("savepoint", "take", "./ck", "sp", "--label", label)
        assert said.returncode == 0
        assert f"note: DIR@LABEL cannot address label {label!r}" in said.stderr
        assert why in said.stderr
        said = holdfast("savepoint", "label", taken, label)
        assert f"note: DIR@LABEL cannot address label {label!r}" in said.stderr
        assert "note" not in holdfast("savepoint", "label", taken, label, "-q").stderr
    assert "note" not in holdfast("savepoint", "take", "./ck", "sp", "--label", "v2").stderr


def test_a_label_that_another_savepoint_has_is_reported_when_it_is_given(
    holdfast: Holdfast, taken: str
) -> None:
    held = taken.rpartition("/")[2]
    again = holdfast("savepoint", "take", "ck", "sp", "--label", "before the move")
    other = again.stdout.strip()
    assert again.returncode == 0
    assert other in again.stdout
    assert f"note: savepoint {held} has the label 'before the move' too" in " ".join(again.stderr.split())
    renamed = holdfast("savepoint", "label", other, "after the move")
    assert "too" not in renamed.stderr
    renamed = holdfast("savepoint", "label", other, "before the move")
    assert f"note: savepoint {held} has the label 'before the move' too" in " ".join(renamed.stderr.split())
    assert "3 savepoints" not in renamed.stderr


@pytest.mark.slow
def test_edits_and_undos_leave_the_label_to_the_original(holdfast: Holdfast, taken: str) -> None:
    edited = holdfast("state", "edit", "sp@before the move", "--delete", "--key", "c1", "-y")
    assert edited.returncode == 0, edited.stderr
    undone = holdfast("state", "undo", edited.stdout.strip().splitlines()[0], "--label", "undone", "-y")
    assert undone.returncode == 0, undone.stderr
    names = {
        label: told(holdfast("savepoint", "show", f"sp@{label}", "--json"))["id"]
        for label in ("before the move", "undone")
    }
    assert names["before the move"] == taken.rpartition("/")[2]
    assert undone.stdout.strip().endswith(names["undone"])
