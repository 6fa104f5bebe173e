"""The jobs in the folders of `examples/` do what their pages show, and their own tests pass."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command import PROGRAM
from installed_wheel import readers_environment
from loopback import free_ports
from terminals import follow

EXAMPLES = Path(__file__).parents[2] / "examples"
JOBS = sorted(test.parent.name for test in EXAMPLES.glob("*/test_*.py"))


@pytest.mark.spark
@pytest.mark.fault
@pytest.mark.parametrize("name", JOBS)
def test_its_page_shows_what_it_prints(name: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(EXAMPLES / name, tmp_path / name))
    [port] = free_ports(1)
    told = (folder / "README.md").read_text(encoding="utf-8")
    follow(told, folder, readers_environment(Path(PROGRAM).parent, port), tmp_path)


def test_their_own_tests_pass() -> None:
    tests = [f"{name}/test_{name}.py" for name in JOBS]
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        "/dev/null",
        "--rootdir",
        ".",
    ]
    done = subprocess.run([*words, *tests], cwd=EXAMPLES, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_is_in_the_list() -> None:
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert [name for name in JOBS if f"]({name}/README.md)" not in page] == []
    assert len(JOBS) == 6
