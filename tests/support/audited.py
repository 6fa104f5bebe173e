"""Commands in a process that tells on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# Runs commands in a Python that notes every process they start and every heavy module that is loaded.
_PROGRAM = """
import json, sys
commands = json.loads(sys.stdin.read())
started = []
def note(event, args):
    if event in ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.system"):
        started.append(f"{event} {str(args)[:100]}")
sys.addaudithook(note)
for command in commands:
    started.clear()
    code = 0
    sys.argv = ["holdfast", *command]
    from holdfast.cli import main
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    heavy = [name for name in ("pyspark", "pyarrow", "pandas", "py4j", "numpy") if name in sys.modules]
    print("AUDIT", json.dumps([code or 0, started, heavy]), file=sys.stderr)
"""


@dataclass(frozen=True)
class Audit:
    """What a command did.

    Attributes:
        code: Its exit code.
        started: The processes that it started.
        heavy: The heavy modules that it, or a command before it, has loaded.
        stdout: What it and the commands beside it printed.
    """

    code: int
    started: tuple[str, ...]
    heavy: tuple[str, ...]
    stdout: str


def audited(commands: Sequence[Sequence[str]], folder: Path) -> list[Audit]:
    """Run commands one after the other in one new process; a module that one loads stays loaded."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        cwd=folder,
        env={**os.environ, "HOLDFAST_HOME": str(folder / "home")},
        input=json.dumps([list(command) for command in commands]),
        capture_output=True,
        text=True,
        check=True,
    )
    audits = [line.removeprefix("AUDIT ") for line in done.stderr.splitlines() if line.startswith("AUDIT ")]
    assert len(audits) == len(commands), done.stderr
    return [
        Audit(code, tuple(started), tuple(heavy), done.stdout)
        for code, started, heavy in map(json.loads, audits)
    ]
