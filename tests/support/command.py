"""The `holdfast` command as a person would call it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from small_session import small_driver

PROGRAM = str(Path(sys.executable).parent / "holdfast")

Holdfast = Callable[..., "subprocess.CompletedProcess[str]"]


# What a person would write down for them. Not in a folder of settings, which would be one of classes too:
# a JVM uses no archive for others than it was made with.
DEFAULTS = small_driver()


def environment(home: Path) -> dict[str, str]:
    """What the command finds around it: a state home, and settings of Spark for jobs as short as these."""
    given = shlex.join(word for each in DEFAULTS.items() for word in ("--conf", "=".join(each)))
    return {**os.environ, "HOLDFAST_HOME": str(home), "PYSPARK_SUBMIT_ARGS": f"{given} pyspark-shell"}


def answer_of(script: Path, asked: Mapping[str, Any], home: Path, timeout: float = 600) -> Any:
    """Return the JSON in the last line of a script with a session of its own, to JSON in its argument."""
    said = subprocess.run(
        [sys.executable, str(script), json.dumps(asked)],
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert said.returncode == 0, said.stderr[-6000:]
    return json.loads(said.stdout.splitlines()[-1])


def command_in(folder: Path, home: Path, program: Sequence[str] = (PROGRAM,)) -> Holdfast:
    """The command, to be called in a directory with a state home and Spark settings of its own."""

    def call(
        *arguments: str, environ: Mapping[str, str] | None = None, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*program, *arguments],
            cwd=folder,
            env={**environment(home), **(environ or {})},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return call
