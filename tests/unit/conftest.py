"""What tests share that need neither a JVM nor a server."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runner import cli_in
from command import Holdfast


@pytest.fixture
def holdfast(tmp_path: Path, home: Path) -> Holdfast:
    """Run the command in an empty directory, without a process of its own."""
    return cli_in(tmp_path, home)
