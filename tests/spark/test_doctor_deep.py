from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from command import Holdfast

pytestmark = pytest.mark.spark


def path_without_java(folder: Path) -> str:
    """A PATH with every program of today's but Java's."""
    folder.mkdir()
    for directory in os.get_exec_path():
        for program in Path(directory).glob("*"):
            link = folder / program.name
            if program.name not in ("java", "javac") and not link.is_symlink():
                link.symlink_to(program)
    return str(folder)


def test_a_stateful_query_runs_where_there_is_no_java(holdfast: Holdfast, tmp_path: Path, home: Path) -> None:
    path = path_without_java(tmp_path / "bin")
    said = holdfast("doctor", "--start-spark", "--json", environ={"PATH": path, "JAVA_HOME": ""}, timeout=300)
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout.splitlines()[-1])
    assert found["deep"]["found"] == "counts {0: 20, 1: 20, 2: 20}"
    (java,) = [check for check in found["checks"] if check["name"] == "java"]
    assert "holdfast[java]" in java["found"]
    assert any((home / "java").iterdir())
