"""`holdfast tour`: each step is run in earnest, and says what can be counted in its arrivals by hand."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

import pytest
from command import Holdfast

from holdfast import savepoints
from holdfast.demo.tour.steps import STEPS

pytestmark = pytest.mark.slow

# By hand, out of the fifteen lines of the arrivals: a05 and a12 come twice, and the second a02 is too late.
VISITS = {"ann": 5, "bob": 3, "cho": 2, "dee": 1, "eve": 1}
# ann's a01 and a03 are in the first file, then one of her arrivals in each.
ANN_BY_BATCH = {0: 2, 1: 3, 2: 4, 3: 5}


def test_the_steps_tell_what_is_in_the_arrivals(holdfast: Holdfast, tmp_path: Path, home: Path) -> None:
    said = holdfast("tour", "shop", "--json", environ={"HOLDFAST_CONFIG": "gone.toml"})
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert found["folder"] == str(tmp_path / "shop")
    steps = {name_of(step["command"]): step for step in found["steps"]}
    outputs = [step["output"] for step in found["steps"]]
    assert len(outputs) == len(STEPS)
    assert outputs[0].count("arrival_id") == 15
    assert "whole (newest committed batch 4;" in outputs[1]
    assert '{"count": 5}' in steps["state get"]["output"]
    history = re.findall(r"^ *(\d) .*\{\"count\": (\d)\}", steps["state history"]["output"], re.MULTILINE)
    assert {int(batch): int(count) for batch, count in history} == ANN_BY_BATCH
    scanned = re.findall(r"^(\w+) +(\d)$", steps["state scan"]["output"], re.MULTILINE)
    assert {customer: int(count) for customer, count in scanned} == VISITS
    changed, undone = (step["output"] for step in found["steps"] if "diff" in step["command"])
    assert '{"count": 5} -> {"count": 4}' in changed
    assert "the states are the same" not in changed
    assert "the states are the same" in undone
    assert str(tmp_path / "shop" / "restored") in steps["restore"]["output"]
    assert not (tmp_path / "shop" / "restored").exists()
    damaged, verified = found["steps"][-2:]
    file = re.search(r"of=damaged/(\S+)", damaged["command"])
    assert file is not None
    assert verified["exit_code"] == 6
    assert verified["output"].startswith(f"{file[1]}\n")
    whole, broken = (
        (tmp_path / "shop" / place / file[1]).read_bytes() for place in ("checkpoint", "damaged")
    )
    assert len(whole) == len(broken)
    assert sum(one != other for one, other in zip(whole, broken, strict=True)) == 1
    assert not home.exists()  # the person's state home and settings are not those of the tour


def name_of(command: str) -> str:
    words = [word for word in command.split() if word != "holdfast"]
    return " ".join(words[:2]) if words[0] in ("state", "checkpoint", "savepoint") else words[0]


def test_what_it_leaves_is_what_the_verbs_say_of_it(holdfast: Holdfast) -> None:
    shown = holdfast("tour", "shop", "--yes")
    assert shown.returncode == 0, shown.stderr
    commands = re.findall(r"^\$ (.+)$", shown.stdout, re.MULTILINE)
    assert len(commands) == 1 + len(STEPS)
    assert "The files are in " in shown.stdout
    rescaled = holdfast("state", "list", "shop/rescaled", "--json")
    operators = json.loads(rescaled.stdout)["operators"]
    assert {operator["partitions"] for operator in operators} == {3}
    rows = json.loads(holdfast("state", "scan", "shop/rescaled", "aggregate", "--json").stdout)["rows"]
    assert {row["customer"]: row["count"] for row in rows} == VISITS
    saved = json.loads(holdfast("savepoint", "list", "shop/savepoints", "--json").stdout)["savepoints"]
    assert len(saved) == 3
    assert holdfast("checkpoint", "verify", "shop/checkpoint").returncode == 0


def test_a_directory_with_something_in_it_is_left_alone(holdfast: Holdfast, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    said = holdfast("tour", "mine", "--yes")
    assert (said.returncode, said.stdout) == (4, "")
    assert "the tour needs an empty directory" in said.stderr
    said = holdfast("tour", "mine/notes.txt/below", "--yes")
    assert (said.returncode, said.stdout) == (2, "")
    assert "cannot write the files" in said.stderr
    assert [path.name for path in mine.iterdir()] == ["notes.txt"]


def test_without_a_directory_it_is_a_temporary_one(
    holdfast: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    said = holdfast("tour")  # input is no terminal
    assert said.returncode == 0, said.stderr
    [folder] = tmp_path.glob("holdfast-tour-*")
    assert f"The files are in {folder}" in said.stdout


def test_ctrl_c_in_the_middle_of_a_verb_is_said_once(
    holdfast: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_given: object, **_named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(savepoints, "rescale", interrupted)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    said = holdfast("tour")
    assert said.returncode == 130
    assert said.stderr.count("interrupted") == 1
    assert "the states are the same\n" in said.stdout  # the steps before it
    assert list((tmp_path / "tmp").iterdir()) == []
    said = holdfast("tour", "shop")
    assert said.returncode == 130
    assert said.stderr.count("interrupted") == 1
    assert f"the files so far are in {tmp_path}/shop" in said.stderr
    assert (tmp_path / "shop" / "checkpoint").is_dir()
