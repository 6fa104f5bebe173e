"""Holdfast in the tools of other projects, by these projects' own programs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from github_runner import Runner
from required import require

ROOT = Path(__file__).parents[2]
ERROR = 'events = spark.readStream.table("events")\nonce = events.dropDuplicates(["id"])\n'
FIXED = 'events = spark.readStream.table("events").withWatermark("at", "1 hour")\n'

sys.path.append(str(ROOT / "tests" / "golden" / "helm"))
import render  # noqa: E402


def run(*words: str | Path, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def clone(target: Path) -> Path:
    """A repository with the files of this tree from which Holdfast is installed."""
    for part in ("src", "scripts"):
        shutil.copytree(ROOT / part, target / part, ignore=shutil.ignore_patterns("__pycache__"))
    for page in ("pyproject.toml", "README.md", "LICENSE", ".pre-commit-hooks.yaml", "action.yml"):
        shutil.copy(ROOT / page, target / page)
    shutil.copytree(ROOT / "deploy", target / "deploy")
    repository(target)
    return target


def repository(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for words in (
        ("init", "-q"),
        ("config", "user.name", "a developer"),
        ("config", "user.email", "dev@shop.example"),
        ("add", "-A"),
        ("commit", "-q", "--allow-empty", "-m", "first"),
    ):
        done = run("git", *words, cwd=folder)
        assert done.returncode == 0, done.stderr


def test_pre_commit_refuses_a_commit_with_an_error(tmp_path: Path) -> None:
    """It clones the repository, installs the hook from it, and runs it at each commit."""
    pre_commit = require("pre-commit").parent / "bin" / "pre-commit"
    hooks = clone(tmp_path / "holdfast")
    assert run(pre_commit, "validate-manifest", ".pre-commit-hooks.yaml", cwd=ROOT).returncode == 0
    revision = run("git", "rev-parse", "HEAD", cwd=hooks).stdout.strip()
    shop = tmp_path / "shop"
    repository(shop)
    (shop / ".pre-commit-config.yaml").write_text(
        f"repos:\n- repo: {hooks}\n  rev: {revision}\n  hooks:\n  - id: holdfast-lint\n    files: ^jobs/\n"
    )
    environ = {"PRE_COMMIT_HOME": str(tmp_path / "pre-commit"), "PYTHONPATH": ""}
    assert run(pre_commit, "install", cwd=shop, **environ).returncode == 0

    def commit(jobs: dict[str, str]) -> subprocess.CompletedProcess[str]:
        for name, text in jobs.items():
            (shop / name).parent.mkdir(exist_ok=True)
            (shop / name).write_text(text)
        assert run("git", "add", "-A", cwd=shop).returncode == 0
        return run("git", "commit", "-m", "jobs", cwd=shop, **environ)

    said = commit({"jobs/orders.py": ERROR, "jobs/visits.py": FIXED, "scripts/other.py": ERROR})
    assert said.returncode == 1, said.stdout + said.stderr
    assert "jobs/orders.py:2: HF103 error" in said.stdout + said.stderr
    assert "other.py" not in said.stdout + said.stderr
    said = commit({"jobs/orders.py": FIXED})
    assert said.returncode == 0, said.stdout + said.stderr
    assert "holdfast lint" in said.stdout + said.stderr
    assert run("git", "rev-list", "--count", "HEAD", cwd=shop).stdout == "2\n"


def test_the_action_and_the_workflow_of_the_guide_fit_githubs_schemas(tmp_path: Path) -> None:
    check = require("pre-commit").parent / "bin" / "check-jsonschema"
    said = run(check, "--builtin-schema", "vendor.github-actions", "action.yml", cwd=ROOT)
    assert said.returncode == 0, said.stdout
    guide = (ROOT / "docs" / "guides" / "in-your-tools.md").read_text(encoding="utf-8")
    workflow = next(
        block for block in re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL) if "runs-on" in block
    )
    (tmp_path / "workflow.yml").write_text(workflow)
    said = run(check, "--builtin-schema", "vendor.github-workflows", "workflow.yml", cwd=tmp_path)
    assert said.returncode == 0, said.stdout
    # The schema does see what is wrong.
    (tmp_path / "action.yml").write_text(
        (ROOT / "action.yml").read_text().replace("shell: bash", "shel: bash")
    )
    said = run(check, "--builtin-schema", "vendor.github-actions", "action.yml", cwd=tmp_path)
    assert said.returncode == 1


def test_the_action_installs_holdfast_from_its_own_commit(tmp_path: Path) -> None:
    """From an index: only Spark is left out."""
    require("pre-commit")
    (tmp_path / "run").mkdir()
    runner = Runner(tmp_path / "run", "http://nobody.example")
    runner.environ |= {"GITHUB_ACTION_PATH": str(clone(tmp_path / "holdfast")), "PYTHONPATH": ""}
    said = runner.run("Install Holdfast", python=sys.executable)
    assert said.returncode == 0, said.stderr
    [folder] = Path(runner.environ["GITHUB_PATH"]).read_text().splitlines()
    runner.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
    (runner.workspace / "orders.py").write_text(ERROR)
    assert runner.run("Lint").returncode == 0
    assert runner.values["steps.lint.outputs.verdict"] == "errors"
    assert runner.run("Report", comment="false").returncode == 1
    assert "HF103" in runner.summary.read_text()


@pytest.mark.parametrize("release", render.RELEASES)
def test_helm_renders_the_files_of_the_tests(release: str) -> None:
    helm = require("helm")
    assert render.text(helm, release) == (ROOT / "tests" / "golden" / "helm" / f"{release}.yaml").read_text()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "give one of job.code, job.configMap and job.path"),
        (("--set=job.configMap=a", "--set=job.path=/b.py"), "give one of job.code"),
        (("--set=job.path=/b.py", "--set=replicas=3"), "replicas"),
        (("--set=job.path=/b.py", "--set=ha.replicas=1"), "replicas"),
        (("--set=job.path=b.py",), "pattern"),
    ],
)
def test_helm_refuses_values_that_give_no_job(options: tuple[str, ...], words: str) -> None:
    said = render.rendered(require("helm"), *options)
    assert said.returncode != 0
    assert words in said.stderr


def test_helm_lints_the_chart() -> None:
    said = run(require("helm"), "lint", "--strict", render.CHART, "--set=job.path=/jobs/a.py", cwd=ROOT)
    assert said.returncode == 0, said.stdout
