"""Digests and differences computed on executors are those that this process computes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from grid import WHOLE
from pyspark.sql import SparkSession

import holdfast as hf
from golden import golden_on_disk
from holdfast.savepoints import planning

NAMES = (
    "4.2/aggregate-changelog",
    "4.2/aggregate-memory",
    "4.2/join-format2",
    "4.2/keyed-format2",
    "4.2/session-rocksdb",
    "4.2/state-format2",
)
MASTER = "local-cluster[2,1,1024]"


@pytest.fixture(autouse=True)
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A take reads no rows of these small states, so their digests are pending."""
    monkeypatch.setattr(planning, "SMALL_BYTES", 0)


@pytest.mark.parametrize("name", NAMES if WHOLE else NAMES[:1])
def test_digests_and_differences_are_the_same(spark: SparkSession, tmp_path: Path, name: str) -> None:
    place = golden_on_disk(name, tmp_path / "checkpoint")
    alone, spread = (
        hf.savepoints.take(place, tmp_path / catalog, digest=False).uri for catalog in ("alone", "spread")
    )
    expected = hf.savepoints.digest(alone).as_dict() | {"savepoint": spread}
    assert expected["made"]
    assert hf.savepoints.digest(spread, master="local[2]").as_dict() == expected
    assert hf.savepoints.verify(spread, deep=True).content == "compared"
    one, other = f"{place}@9", spread
    expected = hf.savepoints.diff(one, other).as_dict()
    assert not expected["same"]
    assert hf.savepoints.diff(one, other, master="local[2]").as_dict() == expected


@pytest.mark.parametrize("name", NAMES)
def test_state_is_moved_as_by_one_process(spark: SparkSession, tmp_path: Path, name: str) -> None:
    place = golden_on_disk(name, tmp_path / "checkpoint")
    saved = hf.savepoints.take(place, tmp_path / "catalog").uri
    expected = hf.savepoints.rescale(saved, tmp_path / "alone", partitions=5)
    rescaled = hf.savepoints.rescale(saved, tmp_path / "spread", partitions=5, master="local[2]")
    assert rescaled.states == expected.states
    assert hf.checkpoints.verify(tmp_path / "spread").problems == ()
    assert hf.savepoints.diff(tmp_path / "alone", tmp_path / "spread").same
    migrated = hf.migrate(saved, tmp_path / "three", partitions=3, master="local[2]")
    assert migrated.after == expected.states
    changed = hf.change(saved).partitions(4, master="local[2]").to(tmp_path / "changed")
    assert changed.reports[0].report.after == expected.states
    assert [path.name for path in tmp_path.glob(".holdfast-*")] == []


# The first task to reach the end of a part kills the executor that it runs on, with what that has written.
KILLS = """
import os, signal, sys
from contextlib import nullcontext
from pathlib import Path
import holdfast as hf
from holdfast import savepoints
from holdfast.changes import working_copy
from holdfast.engine.executors import Executors
from holdfast.savepoints import digests
from holdfast.savepoints.address import StateAddress
from holdfast.savepoints.key_diff import compare_states
from holdfast.savepoints.spread_diff import compare_in_tasks

first, second, third, pending, folder, master = sys.argv[1:]

def fatal(work, mark):
    def kills_once(item):
        result = work(item)
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return result
        daemon = os.getppid()
        executor = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
        assert b"CoarseGrainedExecutorBackend" in Path(f"/proc/{executor}/cmdline").read_bytes()
        os.kill(executor, signal.SIGKILL)
        return result
    return kills_once

class Killed:
    def __init__(self, tasks):
        self.tasks, self.jobs = tasks, 0
    @property
    def slots(self):
        return 4
    def mark(self):
        self.jobs += 1
        return f"{folder}/killed-{self.jobs}"
    def run(self, work, *words):
        return self.tasks.run(fatal(work, self.mark()), *words)
    def exchange(self, work, *words):
        return self.tasks.exchange(fatal(work, self.mark()), *words)

sides = [StateAddress.resolve(side).open_state() for side in (first, second)]
with Executors("kills", master) as executors:
    tasks = Killed(executors)
    assert compare_in_tasks(tasks, *sides) == compare_states(*sides)
    digests.digest(*StateAddress.resolve(pending).open_savepoint(), tasks=tasks)
    assert tasks.jobs == 3
    working_copy.executors = lambda name, master: nullcontext(tasks)
    for source, target in ((second, "wider-second"), (third, "wider-third")):
        hf.savepoints.rescale(source, f"{folder}/{target}", partitions=4, master=master, stopped=True)
assert tasks.jobs == 9
"""


@pytest.mark.skipif(not WHOLE, reason="starts a cluster of two executors; HOLDFAST_GRID=all runs it")
def test_a_killed_executor_changes_nothing(tmp_path: Path) -> None:
    place = golden_on_disk("4.2/join-format2", tmp_path / "checkpoint")
    pending = hf.savepoints.take(place, tmp_path / "catalog", digest=False).uri
    third = golden_on_disk("4.2/session-rocksdb", tmp_path / "third")
    sides = [f"{place}@9", str(place), str(third)]
    words = [sys.executable, "-c", KILLS, *sides, pending, str(tmp_path), MASTER]
    done = subprocess.run(
        words,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        check=False,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(list(tmp_path.glob("killed-*"))) == 9
    for source, rescaled in ((place, tmp_path / "wider-second"), (third, tmp_path / "wider-third")):
        assert hf.checkpoints.verify(rescaled).problems == ()
        assert hf.savepoints.diff(source, rescaled).same
    assert [path.name for path in tmp_path.glob(".holdfast-*")] == []
    assert hf.savepoints.verify(pending, deep=True).content == "compared"


@pytest.mark.skipif(not WHOLE, reason="starts a cluster of two executors; HOLDFAST_GRID=all runs it")
def test_two_executors_print_what_one_process_prints(tmp_path: Path) -> None:
    place = golden_on_disk("4.2/aggregate-changelog", tmp_path / "checkpoint")

    def diff(*words: str) -> tuple[int, dict[str, object]]:
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", "savepoint", "diff", f"{place}@9", place, "--json", *words],
            cwd=tmp_path,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
            check=False,
            capture_output=True,
            text=True,
            timeout=500,
        )
        return done.returncode, json.loads(done.stdout)

    assert diff("--master", MASTER) == diff()
