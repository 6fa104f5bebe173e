"""The `holdfast` command as a person would call it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

PROGRAM = str(Path(sys.executable).parent / "holdfast")

Holdfast = Callable[..., "subprocess.CompletedProcess[str]"]


def command_in(folder: Path, home: Path) -> Holdfast:
    """The command, to be called in a directory with a state home of its own."""

    def call(
        *arguments: str, environ: Mapping[str, str] | None = None, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [PROGRAM, *arguments],
            cwd=folder,
            env={**os.environ, "HOLDFAST_HOME": str(home), **(environ or {})},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return call
