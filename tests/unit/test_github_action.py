"""The GitHub Action: its steps, run by bash with the real command, and what they tell GitHub."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
import yaml
from github_runner import ACTION, ROOT, Comments, Runner

from holdfast._version import __version__

sys.path.append(str(ROOT / "deploy" / "github"))
import report

ERROR = 'events = spark.readStream.table("events")\nonce = events.dropDuplicates(["id"])\n'
CLEAN = "a = 1\n"


@pytest.fixture
def comments() -> Iterator[Comments]:
    server = Comments()
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def runner(tmp_path: Path, comments: Comments) -> Runner:
    return Runner(tmp_path, comments.url)


def test_a_finding_fails_the_run_and_one_comment_is_kept_up_to_date(
    runner: Runner, comments: Comments
) -> None:
    jobs = runner.workspace / "the jobs" / "eu"
    jobs.mkdir(parents=True)
    (jobs / "orders.py").write_text(ERROR)
    (runner.workspace / "-clean.py").write_text(CLEAN)
    said = runner.run("Lint", files="**/*.py\n*.sql")
    assert said.returncode == 0, said.stderr
    assert runner.values["steps.lint.outputs.verdict"] == "errors"
    sarif = json.loads(Path(runner.values["steps.lint.outputs.sarif"]).read_text())
    [result] = sarif["runs"][0]["results"]
    [location] = result["locations"]
    assert location["physicalLocation"]["artifactLocation"]["uri"] == "the%20jobs/eu/orders.py"

    said = runner.run("Report")
    assert (said.returncode, said.stderr) == (1, "")
    person, ours = comments.bodies
    assert person == "a comment of a person"
    assert "| error | `the%20jobs/eu/orders.py:2` | HF103 | dropDuplicates has no watermark" in ours
    assert runner.summary.read_text() == f"{ours}\n"

    (jobs / "orders.py").write_text(CLEAN)
    assert runner.run("Lint").returncode == 0
    assert runner.values["steps.lint.outputs.verdict"] == "clean"
    assert runner.run("Report").returncode == 0
    assert len(comments.bodies) == 2
    assert comments.bodies[1].endswith("`holdfast lint`: 0 findings, 0 of them errors.")


def test_what_cannot_be_linted_ends_the_run_with_the_reason(runner: Runner) -> None:
    said = runner.run("Lint", files="jobs/*.py")
    assert (said.returncode, said.stdout) == (
        2,
        "::error title=Holdfast::no file matches the input files\n",
    )
    (runner.workspace / "broken.py").write_text("def f(:\n")
    said = runner.run("Lint", files="broken.py")
    assert said.returncode == 2
    assert "broken.py" in said.stderr


CHECKED = "visits\n  state count: lost\n```\nthe query would start, but state would be lost\n"


@pytest.mark.parametrize(
    ("verdict", "code", "words"),
    [
        ("kept", 0, "keeps all state"),
        ("loses", 1, "would lose or reinterpret state"),
        ("fails", 1, "would not start"),
    ],
)
def test_the_verdict_of_the_check_is_the_first_line_and_the_exit_code(
    runner: Runner, verdict: str, code: int, words: str
) -> None:
    (runner.temp / "holdfast-check.txt").write_text(CHECKED)
    (runner.temp / "clean.sarif").write_text(json.dumps({"runs": [{"results": []}]}))
    runner.values |= {
        "steps.lint.outputs.sarif": str(runner.temp / "clean.sarif"),
        "steps.check.outputs.verdict": verdict,
    }
    said = runner.run("Report", job="visits.py", against="s3://shop/savepoints@latest", comment="false")
    assert said.returncode == code, said.stderr
    text = runner.summary.read_text()
    assert f"**`visits.py` {words}**, checked against `s3://shop/savepoints@latest`." in text
    # A fence in the output does not end the block.
    assert f"````\n{CHECKED}````\n" in text


def test_a_token_that_may_not_comment_is_a_warning(runner: Runner, comments: Comments) -> None:
    comments.refused = True
    (runner.temp / "clean.sarif").write_text(json.dumps({"runs": [{"results": []}]}))
    runner.values["steps.lint.outputs.sarif"] = str(runner.temp / "clean.sarif")
    said = runner.run("Report")
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout == "::warning title=Holdfast::no comment: the token may not write one (403)\n"
    assert len(comments.bodies) == 1


def test_names_of_files_are_no_markup() -> None:
    found = [("error", "a|b`c.py:2", "HF103", "a | b <img> @team")]
    [row] = [line for line in report.report(found, "", "", "", "").splitlines() if line.startswith("| error")]
    assert row == "| error | `a/b'c.py:2` | HF103 | a \\| b &lt;img> @&#8203;team |"


def test_no_script_has_an_expression_and_every_one_has_a_shell() -> None:
    """A script with an expression would run what a pull request's author wrote into a branch name."""
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step.get("run", "")
        assert ("run" in step) == (step.get("shell") == "bash")


def test_the_guides_workflow_has_inputs_that_there_are() -> None:
    guide = (ROOT / "docs" / "guides" / "in-your-tools.md").read_text()
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)]
    [workflow] = [block for block in blocks if isinstance(block, dict) and "jobs" in block]
    [used] = [
        step
        for job in workflow["jobs"].values()
        for step in job["steps"]
        if "/holdfast@" in step.get("uses", "")
    ]
    assert used["uses"].endswith(f"@v{__version__}")
    assert set(used["with"]) <= set(ACTION["inputs"])
