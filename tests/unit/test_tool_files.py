"""Files that other tools read: the hook for pre-commit, and the development container."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from command import Holdfast

from holdfast._version import __version__

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guides" / "in-your-tools.md").read_text(encoding="utf-8")
ERROR = 'events = spark.readStream.table("events")\nonce = events.dropDuplicates(["id"])\n'


def blocks() -> list[Any]:
    return [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)]


def test_the_hook_refuses_the_files_of_a_commit(
    holdfast: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pre-commit appends the files to the entry."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clean.py").write_text("a = 1\n")
    (tmp_path / "error.py").write_text(ERROR)
    [hook] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    program, *words = shlex.split(hook["entry"])
    assert program == "holdfast"
    assert holdfast(*words, "clean.py").returncode == 0
    assert holdfast(*words, "clean.py", "error.py").returncode == 1
    [ours] = next(block["repos"] for block in blocks() if "repos" in block)
    assert (ours["rev"], [used["id"] for used in ours["hooks"]]) == (f"v{__version__}", [hook["id"]])


def test_the_development_container_can_run_the_tests() -> None:
    text = (ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8")
    described = json.loads(re.sub(r"^ *//.*$", "", text, flags=re.MULTILINE))
    program, *targets = described["postCreateCommand"].split()
    assert program == "make"
    assert (
        subprocess.run(["make", "-n", *targets], cwd=ROOT, capture_output=True, check=False).returncode == 0
    )
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    versions = re.findall(r"Python :: (3\.\d+)", project)
    [python] = re.findall(r"/python:(?:\d-)?(3\.\d+)-", described["image"])
    assert python in versions
    [java] = [feature["version"] for name, feature in described["features"].items() if "/java:" in name]
    assert f"Python {python} and Java {java}" in GUIDE
    # What the guide of the image says of Java holds here too.
    assert f"openjdk-{java}-jre" in (ROOT / "deploy" / "image" / "Dockerfile").read_text(encoding="utf-8")
