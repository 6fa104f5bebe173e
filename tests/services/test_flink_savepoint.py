"""A Spark query continues with the keyed state of a real Flink job, by the steps of the guide."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from required import PYFLINK, ROOT, require
from spark_directory import working_in

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.spark]

GUIDE = ROOT / "docs" / "guides" / "flink-savepoints.md"
JOB = Path(__file__).parent / "jobs" / "Visits.java"
PATIENCE_S = 180
WEEK_MS = 7 * 24 * 3600 * 1000
# What one thread writes is in one order: ann visits home, then the cart.
LINES = "ann,home,3\nbob,home,7\nann,cart,5\n"


@pytest.mark.parametrize(
    ("backend", "form"), [("hashmap", "CANONICAL"), ("hashmap", "NATIVE"), ("rocksdb", "CANONICAL")]
)
def test_spark_counts_on_from_flinks_totals(
    backend: str, form: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = require("flink-state", "java", "javac")
    (tmp_path / "visits").mkdir()
    (tmp_path / "visits" / "monday.csv").write_text(LINES, encoding="utf-8")
    job = _compiled(tmp_path)
    before_ms = time.time_ns() // 1_000_000
    savepoint = _flink_run(job, tmp_path, backend, form)
    after_ms = time.time_ns() // 1_000_000

    jars = f"file://{reader};file://{job}"
    exported = _exported(savepoint, jars, tmp_path)
    stamps = {who: row["first"].pop("lastAccessTimestamp") for who, row in exported.items()}
    assert exported == {
        "ann": {
            "customer": "ann",
            "count": 2,
            "last": {"page": "cart", "seconds": 5},
            "first": {"userValue": "home"},
            "pages": ["home", "cart"],
            "by_page": {"home": 1, "cart": 1},
        },
        "bob": {
            "customer": "bob",
            "count": 1,
            "last": {"page": "home", "seconds": 7},
            "first": {"userValue": "home"},
            "pages": ["home"],
            "by_page": {"home": 1},
        },
    }
    assert all(before_ms <= stamp <= after_ms for stamp in stamps.values())

    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"spark": spark, "__name__": "__main__"}
    with working_in(spark, tmp_path):
        for block in re.findall(
            r"^```python\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
        ):
            exec(compile(block, str(GUIDE), "exec"), names)
    # Wednesday has a third visit of ann, her second of the cart, and the first of dee.
    assert names["counted"] == {"ann": (3, 2, ["home", "cart", "cart"]), "dee": (1, 1, ["help"])}
    written = hf.state(names["warm"].uri).scan("visits.first")
    assert {(row.key["customer"], row.value["first"], row.expires_ms) for row in written} == {
        ("ann", "home", stamps["ann"] + WEEK_MS),
        ("bob", "home", stamps["bob"] + WEEK_MS),
    }


def test_flink_refuses_what_the_guide_says(tmp_path: Path) -> None:
    """A native savepoint of RocksDB, and one without the classes of the job."""
    reader = require("flink-state", "java", "javac")
    (tmp_path / "visits").mkdir()
    (tmp_path / "visits" / "monday.csv").write_text(LINES, encoding="utf-8")
    job = _compiled(tmp_path)
    savepoint = _flink_run(job, tmp_path, "rocksdb", "NATIVE")
    refused = _export(savepoint, f"file://{reader};file://{job}", tmp_path)
    assert refused.returncode != 0
    assert "Unsupported KeyedStateHandle type" in refused.stderr
    savepoint = _flink_run(job, tmp_path, "hashmap", "CANONICAL")
    refused = _export(savepoint, f"file://{reader}", tmp_path)
    assert refused.returncode != 0
    assert "Could not find class 'Visits$Last' in classpath" in refused.stderr


def _guide() -> str:
    return GUIDE.read_text(encoding="utf-8")


def _flink() -> str:
    """The jars of Flink in PyFlink's package."""
    [jars] = PYFLINK.parents[1].glob("lib/python3*/site-packages/pyflink/lib")
    return f"{jars}/*"


def _compiled(folder: Path) -> Path:
    """A jar with the job."""
    classes, jar = folder / "classes", folder / "visits-job.jar"
    _run(["javac", "-d", str(classes), "-cp", _flink(), str(JOB)])
    _run(["jar", "cf", str(jar), "-C", str(classes), "."])
    return jar


def _flink_run(job: Path, folder: Path, backend: str, form: str) -> str:
    """Run the job on a cluster in one process until it has read all lines; the path of its savepoint."""
    opened = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("lang", "util")]
    said = _run(
        [
            *("java", "-Xmx600m", *opened, "-cp", f"{job}:{_flink()}", "Visits"),
            *((folder / "visits").as_uri(), (folder / "flink-savepoints").as_uri()),
            *(str(LINES.count("\n")), backend, form),
        ]
    )
    [line] = [line for line in said.stdout.splitlines() if line.startswith("savepoint file:")]
    return line.removeprefix("savepoint file:")


def _export(savepoint: str, jars: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the guide's script."""
    [script] = re.findall(
        r"^```\n(import sys\n.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    (folder / "export.py").write_text(script, encoding="utf-8")
    target = (folder / "exported").as_uri()
    return subprocess.run(
        [str(PYFLINK), str(folder / "export.py"), savepoint, jars, target],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def _exported(savepoint: str, jars: str, folder: Path) -> dict[str, Any]:
    said = _export(savepoint, jars, folder)
    assert said.returncode == 0, said.stderr
    files = [file for file in (folder / "exported").rglob("*") if file.is_file()]
    rows = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    assert len({row["customer"] for row in rows}) == len(rows)
    return {row["customer"]: row for row in rows}


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done
