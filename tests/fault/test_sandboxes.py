"""Code that is compared, and recoveries that are rehearsed: nothing but the sandbox sees any of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command import PROGRAM, Holdfast, environment
from running_job import until

from holdfast import checkpoints, savepoints
from holdfast.stream.trials import Trial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.fault, pytest.mark.spark]

BEGIN = 1_772_700_000
JOBS = Path(__file__).parent / "jobs" / "compared.py"


def order(day: Path, number: int, rows: dict[str, int]) -> None:
    day.mkdir(exist_ok=True)
    lines = [json.dumps({"who": who, "amount": amount}) for who, amount in rows.items()]
    file = day / f"{number}.json"
    file.write_text("\n".join(lines))
    # Spark takes files by their times, which may be the same for files of one moment.
    os.utime(file, (BEGIN + number, BEGIN + number))


@pytest.fixture
def saved(spark: SparkSession, tmp_path: Path) -> str:
    """A savepoint behind one file of orders; two more wait for whoever goes on from it."""
    day = tmp_path / "day"
    order(day, 0, {"ann": 1, "bob": 2})
    rows = spark.readStream.schema("who string, amount long").option("maxFilesPerTrigger", 1).json(str(day))
    totals = rows.groupBy("who").sum("amount").withColumnRenamed("sum(amount)", "amount")
    Trial(totals, "update", str(tmp_path / "checkpoint"), None).run(5)
    taken = savepoints.take(tmp_path / "checkpoint", tmp_path / "catalog")
    order(day, 1, {"ann": 10, "cid": 30})
    order(day, 2, {"ann": 100, "bob": 20})
    return taken.uri


def test_new_code_is_compared_and_a_recovery_rehearsed_without_a_trace(
    holdfast: Holdfast, saved: str, home: Path, tmp_path: Path
) -> None:
    before = _files(tmp_path / "checkpoint"), _files(tmp_path / "catalog")
    arguments = ("fork", saved, "--compare", f"{JOBS}:after", "--original", f"{JOBS}:before")
    _kill_in_the_middle(tmp_path, home, *arguments)
    assert len(list((home / "sandboxes").glob("*.lock"))) == 1

    said = holdfast(*arguments, "checkpoints/after", "--json")
    assert said.returncode == 1, said.stderr
    found = json.loads(said.stdout)
    assert (found["equal"], found["batches"], found["input_rows"]) == (False, [1, 2], 4)
    outputs = found["outputs"]
    assert [(each["original_rows"], each["new_rows"]) for each in outputs["batches"]] == [(2, 2), (2, 1)]
    assert (outputs["missing"], outputs["extra"]) == (1, 0)
    assert outputs["missing_samples"] == [{"batch_id": 2, "count": 1, "row": {"who": "ann", "amount": 111}}]
    assert found["state"]["equal"] is False
    assert (found["fork"]["checkpoint"], found["fork"]["batch_id"]) == (
        f"file://{tmp_path}/checkpoints/after",
        0,
    )
    assert checkpoints.read(tmp_path / "checkpoints" / "after").batch_id == 0
    # The remains of the killed one are gone with its own.
    assert list((home / "sandboxes").iterdir()) == []

    said = holdfast("drill", str(tmp_path / "catalog"), "--job", f"{JOBS}:before", "--json")
    assert said.returncode == 0, said.stderr
    drilled = json.loads(said.stdout)
    assert drilled["savepoint"] == saved
    assert list(drilled["phases_ms"]) == ["verify", "copy", "job file", "Spark", "plan", "first batch"]
    assert drilled["recovery_ms"] == sum(drilled["phases_ms"].values())
    assert (drilled["job"], drilled["empty"], drilled["ok"]) == ("before", False, True)
    assert list((home / "sandboxes").iterdir()) == []

    assert not (tmp_path / "written").exists()
    assert savepoints.verify(saved).ok
    notes = {path for path in _files(tmp_path / "catalog") if path.startswith("drills/")}
    assert len(notes) == 1
    assert (_files(tmp_path / "checkpoint"), _files(tmp_path / "catalog") - notes) == before


def _kill_in_the_middle(folder: Path, home: Path, *arguments: str) -> None:
    """Kill a comparison while its first side runs, and wait until what it had started is gone too."""
    with subprocess.Popen(
        [PROGRAM, *arguments], cwd=folder, env=environment(home), stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "original: running" in line:
                break
        assert _running(home)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    until(lambda: not _running(home), "everything that was started has ended")


def _running(home: Path) -> list[str]:
    """The processes whose command line or directory names a sandbox of this home."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                text = (each / "cmdline").read_bytes() + (each / "environ").read_bytes()
            except OSError:
                continue
            if f"{home}/sandboxes/".encode() in text:
                found.append(each.name)
    return found


def _files(folder: Path) -> frozenset[str]:
    return frozenset(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
