"""What every kind of test shares."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import settings

pytest_plugins = ["postgres_server", "ledger_processes"]

# The same examples in each run: a failure on one machine is a failure on all.
settings.register_profile("holdfast", derandomize=True, deadline=None)
settings.load_profile("holdfast")

ROOT = Path(__file__).resolve().parent.parent

Holdfast = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A state home of the test's own."""
    return tmp_path / "home"


@pytest.fixture
def holdfast(tmp_path: Path, home: Path) -> Holdfast:
    """Run the command as a person would, in an empty directory with a state home of its own."""

    def call(
        *arguments: str, environ: Mapping[str, str] | None = None, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(Path(sys.executable).parent / "holdfast"), *arguments],
            cwd=tmp_path,
            env={**os.environ, "HOLDFAST_HOME": str(home), "NO_COLOR": "1", **(environ or {})},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return call
