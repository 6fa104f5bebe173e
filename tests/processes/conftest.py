"""What tests share that look at processes which verbs and the server start."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runner import cli_in
from command import Holdfast


@pytest.fixture
def holdfast(tmp_path: Path, home: Path) -> Holdfast:
    """Run the command in an empty directory; only what it starts is a process."""
    return cli_in(tmp_path, home)
