"""Queries of Spark 3.4 to 4.1 go on from a savepoint, restored and rescaled, in the Spark that wrote them.

What they must put out is what the same Spark puts out where nobody has interrupted it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import savepoints
from holdfast.engine.session.java import find_java, java_home_for_spark

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS / "golden"))

from golden_queries import PROVIDERS, settings, write_input  # noqa: E402 - it is beside the goldens
from make_plain import QUERIES, names_for  # noqa: E402 - as above

SPARKS = TESTS.parent / ".services" / "sparks"
JOB = Path(__file__).parent / "jobs" / "golden_query_runs.py"
VERSIONS = ("3.4", "3.5", "4.0", "4.1")
BEFORE, AFTER = range(6), range(6, 10)
# What each batch has put out.
Output = dict[int, list[str]]


class Runs:
    """Runs of queries in one Spark, many of them in one JVM."""

    def __init__(self, version: str, provider: str, folder: Path) -> None:
        self.python = SPARKS / version / "bin" / "python"
        if not self.python.exists():
            pytest.skip(f"PySpark {version} is not there; `make services-sparks` installs it")
        self.provider = provider
        self.folder = folder
        self.asked: list[dict[str, Any]] = []

    def add(self, query: str, checkpoint: Path, called: str) -> Path:
        output = self.folder / called / query
        output.mkdir(parents=True)
        self.asked.append(
            {
                "query": query,
                "conf": settings(self.provider),
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
        assert done.returncode == 0, done.stderr[-3000:]
        self.asked.clear()


def read_output(folder: Path) -> Output:
    return {int(file.stem): file.read_text().splitlines() for file in folder.iterdir()}


@pytest.mark.spark
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("version", VERSIONS)
def test_queries_go_on_as_those_that_were_not_interrupted(
    version: str, provider: str, tmp_path: Path
) -> None:
    names = names_for(tuple(map(int, version.split("."))))
    queries = [query for query in QUERIES if f"{query}-{provider}" in names]
    if not queries:
        pytest.skip(f"Spark {version} has no such state")
    runs = Runs(version, provider, tmp_path)
    write_input(tmp_path / "input", BEFORE)
    for query in queries:
        runs.add(query, tmp_path / "ck" / query, "first")
    runs.work_off()

    write_input(tmp_path / "input", AFTER)
    outputs = {}
    for query in queries:
        checkpoint, restored, rescaled = (tmp_path / kind / query for kind in ("ck", "restored", "rescaled"))
        taken = savepoints.take(checkpoint, tmp_path / "sp", home=tmp_path / "home")
        assert savepoints.verify(taken.uri, deep=True).ok
        savepoints.restore(taken.uri, restored)
        if query != "stateless":
            savepoints.rescale(taken.uri, rescaled, partitions=3)
        outputs[query] = (
            runs.add(query, checkpoint, "uninterrupted"),
            runs.add(query, restored, "after_restore"),
            None if query == "stateless" else runs.add(query, rescaled, "after_rescale"),
        )
    runs.work_off()

    for query, (uninterrupted, after_restore, after_rescale) in outputs.items():
        expected = read_output(uninterrupted)
        assert len(expected) >= len(AFTER), query
        assert read_output(after_restore) == expected, query
        if after_rescale is None:
            continue
        # The batch that moved the state has a number of its own, and reads nothing.
        moved = int(query not in ("global", "limit"))
        found = read_output(after_rescale)
        assert {batch - moved: rows for batch, rows in found.items()} == expected, query
