"""A query of Spark 3.4 to 4.1 goes on from its savepoint, in the Spark that wrote it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from holdfast import savepoints
from holdfast.at_rest.create.migrating import migrate
from holdfast.engine.session.java import find_java, java_home_for_spark

SPARKS = Path(__file__).parents[2] / ".services" / "sparks"
JOB = Path(__file__).parent / "jobs" / "counted_by_spark.py"
VERSIONS = ("3.4", "3.5", "4.0", "4.1")
BEFORE, AFTER = 4, 3
STORE = "spark.sql.streaming.stateStore"
CHANGELOG = f"{STORE}.rocksdb.changelogCheckpointing.enabled"
HEAP = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROVIDERS = {
    "memory": {f"{STORE}.providerClass": HEAP},
    "rocksdb": {f"{STORE}.providerClass": ROCKSDB, CHANGELOG: "false"},
    "changelog": {f"{STORE}.providerClass": ROCKSDB, CHANGELOG: "true"},
}
Rows = dict[str, tuple[int, int]]


def events(number: int) -> list[tuple[str, int]]:
    """The customers and amounts in a file: every customer once."""
    return [(f"c{(number + each) % 10}", number * 10 + each) for each in range(10)]


def write(folder: Path, numbers: range) -> None:
    folder.mkdir(exist_ok=True)
    for number in numbers:
        file = folder / f"{number:03}.json"
        rows = [{"customer": customer, "amount": amount} for customer, amount in events(number)]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(file, (1_767_225_600 + number,) * 2)  # the order in which Spark takes them


def model(numbers: range, before: Rows) -> tuple[dict[int, Rows], Rows]:
    """What each batch says, a file each, and what the state has then."""
    state, said = dict(before), {}
    for number in numbers:
        for customer, amount in events(number):
            visits, spend = state.get(customer, (0, 0))
            state[customer] = visits + 1, spend + amount
        said[number] = dict(state)
    return said, state


class Query:
    """The query in one Spark."""

    def __init__(self, version: str, provider: str, folder: Path) -> None:
        self.python = SPARKS / version / "bin" / "python"
        if not self.python.exists():
            pytest.skip(f"PySpark {version} is not there; `make services-sparks` installs it")
        self.folder = folder
        self.conf = {
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
            **PROVIDERS[provider],
        }

    def run(self, checkpoint: Path, name: str) -> dict[int, Rows]:
        """Work off the files that are there; returns what each batch of this run said."""
        output = self.folder / name
        output.mkdir()
        asked = {
            "conf": {**self.conf, "spark.sql.warehouse.dir": str(self.folder)},
            "input": str(self.folder / "in"),
            "checkpoint": str(checkpoint),
            "output": str(output),
        }
        java = java_home_for_spark(find_java(os.environ), self.folder)
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        done = subprocess.run(
            [str(self.python), str(JOB), json.dumps(asked)],
            env={**kept, "JAVA_HOME": str(java), "PYSPARK_PYTHON": str(self.python)},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        said = {}
        for file in output.iterdir():
            rows = [json.loads(line) for line in file.read_text().splitlines()]
            said[int(file.stem)] = {customer: (visits, spend) for customer, visits, spend in rows}
        return said


@pytest.mark.spark
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_restored_query_goes_on_as_one_that_was_not_interrupted(
    version: str, provider: str, tmp_path: Path
) -> None:
    if version == "3.4" and provider == "changelog":
        pytest.skip("the changelog is of Spark 3.5 and later")
    query = Query(version, provider, tmp_path)
    write(tmp_path / "in", range(BEFORE))
    before, state = model(range(BEFORE), {})
    assert query.run(tmp_path / "ck", "first") == before

    taken = savepoints.take(tmp_path / "ck", tmp_path / "sp", home=tmp_path / "home")
    assert savepoints.verify(taken.uri, deep=True).ok
    savepoints.restore(taken.uri, tmp_path / "restored")
    moved = version.startswith("4.")
    if moved:
        migrate(taken.uri, tmp_path / "rescaled", partitions=3)
    write(tmp_path / "in", range(BEFORE, BEFORE + AFTER))

    after, _ = model(range(BEFORE, BEFORE + AFTER), state)
    assert query.run(tmp_path / "ck", "uninterrupted") == after
    assert query.run(tmp_path / "restored", "from_savepoint") == after
    if moved:
        # The batch that moved the state has a number of its own, and reads nothing.
        found = query.run(tmp_path / "rescaled", "in_three_partitions")
        assert {batch - 1: rows for batch, rows in found.items()} == after
