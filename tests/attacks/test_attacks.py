"""Each attack script of this folder, run as a person runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = sorted(path for path in Path(__file__).parent.glob("*.py") if not path.name.startswith("test_"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_an_attack_is_refused(script: Path) -> None:
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=600, check=False)
    assert (ended.stdout, ended.returncode) == ("refused\n", 0), ended.stderr
