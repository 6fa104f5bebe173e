"""What the release before wrote goes on working, with a note, and does the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import Holdfast

from golden import NAMES, golden_on_disk
from holdfast import savepoints

NAME = next(name for name in NAMES if "aggregate-format2" in name)
# Each former spelling, and how it is written now.
SPELLINGS = {
    "rescale sp@first --to new --partitions 3 --dry-run": "rescale sp@first new --partitions 3 --dry-run",
    "rescale --to=new sp@first --partitions 3 --dry-run": "rescale sp@first new --partitions 3 --dry-run",
    "state migrate sp@first --backend memory --to new --dry-run": (
        "state migrate sp@first new --backend memory --dry-run"
    ),
    "state erase c1 --everywhere sp --dry-run": "state erase sp c1 --dry-run",
    "state erase --everywhere=./sp c1 --dry-run": "state erase ./sp c1 --dry-run",
}


@pytest.fixture(autouse=True)
def saved(tmp_path: Path) -> None:
    savepoints.take(golden_on_disk(NAME, tmp_path / "ck"), tmp_path / "sp", label="first")


@pytest.mark.parametrize(("former", "now"), SPELLINGS.items())
def test_it_means_the_same(holdfast: Holdfast, former: str, now: str) -> None:
    expected = holdfast(*now.split(), "--json")
    found = holdfast(*former.split(), "--json")
    assert (found.returncode, expected.returncode) == (0, 0), found.stderr
    assert json.loads(found.stdout) == json.loads(expected.stdout)
    option = "--everywhere" if "--everywhere" in former else "--to"
    [note] = [line for line in found.stderr.splitlines() if line.startswith("note: ")]
    words = " ".join(now.split()[: 2 if now.startswith("state") else 1])
    assert note.startswith(f"note: {option} is an argument now: holdfast {words} ")
    assert "until the next release" in note
    assert "note" not in expected.stderr
    assert holdfast(*former.split(), "--json", "--quiet").stderr == ""


def test_the_savepoint_of_a_bootstrap_goes_where_it_did(holdfast: Holdfast, tmp_path: Path) -> None:
    (tmp_path / "plan.py").write_text("def warm(spark): ...\n")
    for words in (("nojob.py", "new"), ("nojob.py", "--to", "new")):
        said = holdfast("state", "bootstrap", *words, "--from", "plan.py", "--dry-run")
        assert (said.returncode, "there is no such job file" in said.stderr) == (3, True), said.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("rescale sp@first new --to other --partitions 3", "unexpected extra argument"),
        ("rescale sp@first --partitions 3 --to", "requires an argument"),
        ("state erase sp c1 --everywhere sp", "unexpected extra argument"),
        ("state erase c1", "Missing argument 'KEY'"),
        ("state bootstrap job.py --from plan.py", "Missing argument 'DIR'"),
    ],
)
def test_both_at_once_or_none_is_an_error(holdfast: Holdfast, words: str, said: str) -> None:
    found = holdfast(*words.split())
    assert found.returncode == 2
    assert said in found.stderr


def test_a_value_that_looks_like_the_option_is_left_alone(holdfast: Holdfast) -> None:
    found = holdfast("state", "erase", "sp", "--dry-run", "--", "--everywhere")
    assert "note" not in found.stderr
    assert found.returncode == 3


@pytest.mark.parametrize("verb", ["rescale", "state bootstrap", "state erase"])
def test_help_shows_the_new_one_alone(holdfast: Holdfast, verb: str) -> None:
    shown = holdfast(*verb.split(), "--help").stdout
    assert "--to" not in shown
    assert "--everywhere" not in shown
