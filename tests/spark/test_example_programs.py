"""The programs in `examples/` run to their end, and print what one gets by hand from their samples."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import reference_examples
from grid import one_in
from spark_directory import working_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"
# Computed by hand from the samples, one event after the other.
PRINTED = {
    "visits_per_customer": """\
ann: visit 1, 2.50 spent, likes tea
ann: visit 2, 6.50 spent, likes tea
ann: visit 3, 10.50 spent, likes mocha
bob: visit 1, 4.00 spent, likes mocha
""",
    "payments_once": """\
each payment is written exactly once
north 09:00: 14.50
north 10:00: 1.00
south 09:00: 8.00
""",
    "save_and_restore": """\
batch 0, whole: True
ann has come 2 times
savepoint of batch 0, proved: True
ann=3 bob=1 eve=1
""",
    "guarded_counts": """\
ann: 2
bob: 1
batch 0, 0 damaged files
""",
}


def exit_code_of(program: Path) -> object:
    """Run a program as `python PROGRAM` does, in this process and its session."""
    try:
        runpy.run_path(str(program), run_name="__main__")
    except SystemExit as ended:
        return ended.code
    return 0


def test_every_example_is_run() -> None:
    assert {program.stem for program in EXAMPLES.glob("*.py")} == PRINTED.keys()


@pytest.mark.parametrize("name", one_in(2, sorted(PRINTED)))
def test_an_example_prints_what_its_samples_give(
    name: str,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = EXAMPLES / f"{name}.py"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(program), "place"])
    with reference_examples.settings_restored(spark), working_in(spark, tmp_path):
        exit_code = exit_code_of(program)
    assert (exit_code, capsys.readouterr().out) == (0, PRINTED[name])
