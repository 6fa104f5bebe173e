"""What `holdfast fork --compare` says, and what it refuses before anything is started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from catalogs import Hands, file_query
from command import Holdfast

from holdfast.checkpoints.state.states import StateName
from holdfast.cli import output
from holdfast.cli.fork import show_compared
from holdfast.jobs.trials.comparison import BatchOutput, ComparisonReport, Outputs, RowSample
from holdfast.jobs.trials.state_diff import FinalStates
from holdfast.savepoints.key_diff import DifferingKey, StateDifference
from holdfast.storage.local import LocalStorage
from holdfast.storage.memory import MemoryStorage

OF_THE_STATE = (
    "operator 0, state default: 1 key only in the original, 1 only in the new code, 1 with a different value"
)
COLUMNS = ("who string", "amount int64")
NAME = StateName(0, "default", "default", "stateStoreSave")


def compared(outputs: Outputs, states: FinalStates) -> ComparisonReport:
    return ComparisonReport("file:///sp", "old.py", "new.py", (3, 4), 1234, outputs, states, None)


def same_state(rows: int) -> FinalStates:
    return FinalStates((StateDifference(NAME, rows, rows, 0, 0, 0, 9, 9),), ())


def test_equal_is_said_in_a_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    batches = (BatchOutput(3, 1000, 1000, 0, 0), BatchOutput(4, 1, 1, 0, 0))
    found = compared(Outputs(COLUMNS, COLUMNS, batches, True, (), ()), same_state(2000))
    assert found.equal
    show_compared(found)
    assert capsys.readouterr().out.splitlines() == [
        "batches 3 to 4 over 1,234 rows of input: original old.py, new new.py",
        "",
        "outputs equal: 1,001 rows in 2 batches",
        "",
        "final state equal: 2,000 keys",
        "",
        "equal: outputs and final state",
    ]


def test_one_row_in_one_batch_is_said_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    outputs = Outputs(COLUMNS, COLUMNS, (BatchOutput(3, 1, 1, 0, 0),), True, (), ())
    show_compared(ComparisonReport("file:///sp", "old.py", "new.py", (3,), 1, outputs, same_state(2), None))
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "batch 3 over 1 row of input: original old.py, new new.py"
    assert said[2] == "outputs equal: 1 row in 1 batch"


def test_every_difference_is_shown_with_rows_and_keys(capsys: pytest.CaptureFixture[str]) -> None:
    outputs = Outputs(
        COLUMNS,
        (*COLUMNS, "note string"),
        (BatchOutput(3, 2, 2, 0, 0), BatchOutput(4, 3, 1, 3, 1)),
        False,
        (RowSample(4, 3, {"who": "ann", "amount": 7}),),
        (RowSample(4, 1, {"who": "bob", "amount": None}),),
    )
    samples = (
        DifferingKey("changed", {"who": "ann"}, {"sum": 7}, {"sum": 8}),
        DifferingKey("removed", "bob", {"sum": 1}, None),
        DifferingKey("added", "cid", None, {"sum": 2}),
    )
    states = FinalStates(
        (StateDifference(NAME, 2, 2, 1, 1, 1, 9, 9, samples),), (StateName(1, "default", "default"),)
    )
    found = compared(outputs, states)
    show_compared(found)
    said = capsys.readouterr().out.splitlines()
    assert said[2:] == [
        "outputs different: 5 rows from the original, 3 from the new code",
        "  + column note string",
        "  rows are compared on the common columns",
        "BATCH  ORIGINAL  NEW  MISSING  EXTRA",
        "    4         3    1        3      1",
        '  - batch 4: {"who": "ann", "amount": 7}, 3 times',
        '  + batch 4: {"who": "bob", "amount": null}',
        "",
        "final state different:",
        "  operator 1, state default: its keys or values have different columns",
        f"  {OF_THE_STATE}",
        '    - {"who": "ann"}: {"sum": 7}',
        '    + {"who": "ann"}: {"sum": 8}',
        '    - bob: {"sum": 1}',
        '    + cid: {"sum": 2}',
        "",
        "different: outputs and final state",
    ]
    output.show(found, True, show_compared)
    fields = json.loads(capsys.readouterr().out)
    assert (fields["equal"], fields["outputs"]["missing"], fields["outputs"]["extra"]) == (False, 3, 1)
    assert fields["outputs"]["extra_samples"] == [
        {"batch_id": 4, "count": 1, "row": {"who": "bob", "amount": None}}
    ]
    assert fields["state"]["states"][0]["same_schema"] is True


@pytest.fixture
def savepoint(tmp_path: Path) -> str:
    return Hands().take(MemoryStorage(file_query(2)), LocalStorage(tmp_path / "catalog")).uri


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "no checkpoint directory given"),
        (("--compare", "new.py"), "--original FILE.py"),
        (("--compare", "new.py", "--original", "old.py", "--dry-run"), "--dry-run cannot be combined"),
    ],
    ids=["nowhere", "no original", "dry run"],
)
def test_what_cannot_be_meant_is_refused(
    holdfast: Holdfast, savepoint: str, arguments: tuple[str, ...], words: str
) -> None:
    said = holdfast("fork", savepoint, *arguments)
    assert said.returncode == 2
    assert words in said.stderr


def test_a_side_without_code_is_named_and_nothing_is_left(
    holdfast: Holdfast, savepoint: str, home: Path, tmp_path: Path
) -> None:
    said = holdfast("fork", savepoint, "fork", "--compare", "new.py", "--original", "old.py")
    assert said.returncode == 3
    assert "error: the original code: the job file does not exist [HF-E3" in said.stderr
    assert "\n  in old.py" in said.stderr
    assert not (home / "sandboxes").exists()
    assert not (tmp_path / "fork").exists()


def test_a_place_that_is_taken_is_refused_before_anything_runs(
    holdfast: Holdfast, savepoint: str, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "fork").mkdir()
    (tmp_path / "fork" / "metadata").write_text("mine")
    said = holdfast("fork", savepoint, "fork", "--compare", "new.py", "--original", "old.py")
    assert said.returncode == 4
    assert "the directory of the new checkpoint is not empty" in said.stderr
    assert not (home / "sandboxes").exists()
