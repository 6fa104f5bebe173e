"""Queries of the golden checkpoints, run by another PySpark than the installed one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.engine.session.java import find_java, java_home_for_spark

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS / "golden"))

from golden_queries import settings  # noqa: E402 - it is beside the goldens

SPARKS = TESTS.parent / ".services" / "sparks"
# Those below the installed one in which Holdfast works with a program's own session.
OLDER = ("3.5", "4.0", "4.1")
JOB = Path(__file__).parent / "jobs" / "golden_query_runs.py"
# What each batch has put out.
Output = dict[int, list[str]]


def python_of(version: str) -> Path:
    """Return the Python of a version's environment, or skip the test without it."""
    python = SPARKS / version / "bin" / "python"
    if not python.exists():
        pytest.skip(f"PySpark {version} is not there; `make services-sparks` installs it")
    return python


class Runs:
    """Runs of queries in one Spark, many of them in one JVM.

    Args:
        version: The release.
        provider: How the state is kept, as `golden_queries.PROVIDERS` has it.
        folder: Where input and outputs are.
        conf: Settings of the session, from its start.
    """

    def __init__(self, version: str, provider: str, folder: Path, conf: dict[str, str] | None = None) -> None:
        self.python = python_of(version)
        self.provider = provider
        self.folder = folder
        self.conf = conf or {}
        self.asked: list[dict[str, Any]] = []

    def add(self, query: str, checkpoint: Path, called: str, **conf: str) -> Path:
        output = self.folder / called / query
        output.mkdir(parents=True)
        self.asked.append(
            {
                "query": query,
                "conf": {**settings(self.provider, query), **conf},
                "input": str(self.folder / "input"),
                "checkpoint": str(checkpoint),
                "output": str(output),
            }
        )
        return output

    def work_off(self) -> None:
        java = java_home_for_spark(find_java(os.environ), self.folder)
        conf = {
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
            **self.conf,
        }
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        done = subprocess.run(
            [str(self.python), str(JOB), json.dumps({"conf": conf, "runs": self.asked})],
            env={**kept, "JAVA_HOME": str(java), "PYSPARK_PYTHON": str(self.python)},
            capture_output=True,
            text=True,
            timeout=1800,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        self.asked.clear()


def read_output(folder: Path) -> Output:
    return {int(file.stem): file.read_text().splitlines() for file in folder.iterdir()}
