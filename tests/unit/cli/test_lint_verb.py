"""`holdfast lint`: what it prints, and its exit codes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from command import Holdfast

from golden import golden_on_disk

ERROR = 'events = spark.readStream.table("events")\nonce = events.dropDuplicates(["id"])\n'
WARNING = 'events = spark.readStream.table("events")\ncounts = events.groupBy("user").count()\n'


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("error.py").write_text(ERROR)
    Path("warning.py").write_text(WARNING)
    Path("clean.py").write_text("a = 1\n")


def told(said: subprocess.CompletedProcess[str], code: int = 0) -> Any:
    assert said.returncode == code, said.stderr
    return json.loads(said.stdout)


def test_an_error_ends_with_exit_code_1_and_a_warning_does_not(holdfast: Holdfast) -> None:
    said = holdfast("lint", "error.py")
    assert said.returncode == 1
    first, instead, empty, last = said.stdout.splitlines()
    assert first == "error.py:2: HF103 error (source): dropDuplicates has no watermark before it"
    assert instead.startswith("  instead: declare a watermark")
    assert (empty, last) == ("", "error.py: 1 error")
    assert holdfast("lint", "warning.py").returncode == 0
    assert holdfast("lint", "clean.py").stdout == "clean.py: no findings\n"


def test_several_files_are_one_report(holdfast: Holdfast) -> None:
    said = holdfast("lint", "error.py", "clean.py", "warning.py", "error.py")
    assert said.returncode == 1
    lines = said.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines if " (source): " in line] == ["error.py", "warning.py"]
    assert lines[-1] == "3 files: 1 error, 1 warning"
    assert holdfast("lint", "warning.py", "clean.py").returncode == 0
    found = told(holdfast("lint", "error.py", "warning.py", "--json"), 1)
    assert (found["place"], found["errors"], found["warnings"]) == ("2 files", 1, 1)
    document = told(holdfast("lint", "--format", "sarif", "--", "warning.py", "error.py"), 1)
    [run] = document["runs"]
    assert [result["ruleId"] for result in run["results"]] == ["HF102", "HF103"]


def test_the_configuration_of_each_file_counts_for_it(holdfast: Holdfast) -> None:
    Path("lax").mkdir()
    Path("lax", "pyproject.toml").write_text('[tool.holdfast.lint]\ndisable = ["HF103"]\n')
    Path("lax", "error.py").write_text(ERROR)
    found = told(holdfast("lint", "lax/error.py", "error.py", "--json"), 1)
    assert [finding["place"] for finding in found["findings"]] == ["error.py"]
    assert found["disabled"] == ["HF103"]


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (("clean.py", "checkpoints"), "several arguments of lint must be files of code"),
        (("shop", "clean.py"), "several arguments of lint must be files of code"),
        (("clean.py", "error.py", "--plan"), "--plan builds the plan of one job"),
    ],
)
def test_only_files_of_code_can_be_several(holdfast: Holdfast, words: tuple[str, ...], fact: str) -> None:
    said = holdfast("lint", *words)
    assert said.returncode == 2
    assert said.stderr.startswith(f"error: {fact}")


def test_json_has_every_fact(holdfast: Holdfast) -> None:
    found = told(holdfast("lint", "error.py", "--json"), 1)
    assert (found["errors"], found["warnings"], found["notes"], found["disabled"]) == (1, 0, 0, [])
    (finding,) = found["findings"]
    assert finding["rule"] == "HF103"
    assert (finding["severity"], finding["evidence"]) == ("error", ["source"])
    assert (finding["place"], finding["line"], finding["column"]) == ("error.py", 2, 15)
    assert finding["suppressed"] is None


def test_sarif_is_one_document(holdfast: Holdfast) -> None:
    said = holdfast("lint", "error.py", "--format", "sarif")
    assert said.returncode == 1
    document = json.loads(said.stdout)
    assert document["version"] == "2.1.0"
    assert [result["ruleId"] for result in document["runs"][0]["results"]] == ["HF103"]


def test_a_checkpoint_is_read_at_its_address(holdfast: Holdfast, tmp_path: Path) -> None:
    golden_on_disk("4.2/aggregate-rocksdb", tmp_path / "ck")
    found = told(holdfast("lint", "ck", "--json"))
    assert [finding["rule"] for finding in found["findings"]] == ["HF308", "HF310"]
    assert all(finding["evidence"] == ["facts"] for finding in found["findings"])


def test_severities_of_the_project_decide_the_exit_code(holdfast: Holdfast) -> None:
    Path("pyproject.toml").write_text(
        '[tool.holdfast.lint]\ndisable = ["HF103"]\nseverity = { HF102 = "error" }\n'
    )
    assert holdfast("lint", "error.py").returncode == 0
    assert holdfast("lint", "warning.py").returncode == 1


def test_lines_are_broken_on_a_narrow_terminal(holdfast: Holdfast) -> None:
    lines = holdfast("lint", "warning.py", environ={"COLUMNS": "40"}).stdout.splitlines()
    assert max(map(len, lines)) <= 40


@pytest.mark.parametrize("words", [("--format", "xml"), ("--format", "sarif", "--json")])
def test_another_format_is_refused(holdfast: Holdfast, words: tuple[str, ...]) -> None:
    said = holdfast("lint", "clean.py", *words)
    assert said.returncode == 2
    assert said.stderr.startswith("error: invalid output format [HF-E")


PLAIN = 'spark = SparkSession.builder.getOrCreate()\nspark.readStream.table("events").writeStream.start()\n'
BROKEN = "import holdfast as hf\n\n\n@hf.job(name='visits', checkpoint='c')\ndef visits(spark:\n"
JOB = "import holdfast as hf\n\n\n@hf.job(name='v', checkpoint='c')\ndef v(spark):\n    pass\n"
MISSING = f"import no_such_package\n{JOB}"
STARTS = """import holdfast as hf
from pyspark.sql.streaming.readwriter import DataStreamWriter

DataStreamWriter.start(object())


@hf.job(name="v", checkpoint="c")
def v(spark):
    pass
"""


@pytest.mark.parametrize(
    ("code", "fact", "found"),
    [
        (PLAIN, "the file has no job, so no plan can be built", "@hf.job(name=…, checkpoint=…)"),
        (BROKEN, "the file is not valid Python", "'(' was never closed"),
        (MISSING, "the job file needs a module that is not installed", "No module named 'no_such_package'"),
        (STARTS, "the code starts the query instead of returning it", "DataStreamWriter.start()"),
    ],
)
def test_a_plan_that_cannot_be_had_is_refused_before_spark_starts(
    holdfast: Holdfast, code: str, fact: str, found: str
) -> None:
    Path("job.py").write_text(code)
    said = holdfast("lint", "job.py", "--plan")
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr.startswith(f"error: {fact}")
    assert found in said.stderr
    assert "hint: " in said.stderr


def test_a_plan_is_asked_of_a_file_alone(holdfast: Holdfast) -> None:
    assert holdfast("lint", "nothing.py", "--plan").returncode == 3
    assert holdfast("lint", "checkpoints", "--plan").returncode == 3
