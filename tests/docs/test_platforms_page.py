"""The page of storages and Spark versions names tests that exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import platform_catalogue
import pytest

ROOT = Path(__file__).parents[2]


def test_each_name_is_a_function_of_its_file() -> None:
    for test in platform_catalogue.test_ids():
        path, _, name = test.partition("::")
        function = re.escape(name.partition("[")[0])
        assert re.search(rf"^def {function}\(", (ROOT / path).read_text("utf-8"), re.MULTILINE), test


@pytest.mark.slow
def test_each_tick_is_a_test() -> None:
    wanted = set(platform_catalogue.test_ids())
    files = sorted({test.partition("::")[0] for test in wanted})
    collected = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files],
        cwd=ROOT,
        env={**os.environ, "HOLDFAST_GRID": "all"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert wanted - set(collected.stdout.splitlines()) == set()
