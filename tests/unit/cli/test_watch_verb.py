"""`holdfast watch`, and savepoints that are taken again and again: what they print, and how they end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from command import PROGRAM, Holdfast

from golden import files_of_batch, golden_files, golden_on_disk
from holdfast import savepoints
from holdfast.checkpoints.record import RecordFile, record_path

pytestmark = pytest.mark.slow

NAME = "4.2/aggregate-memory"
FILES = golden_files(NAME)
NEWEST = 11


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return golden_on_disk(NAME, tmp_path / "ck")


@contextmanager
def going(folder: Path, home: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [PROGRAM, *words],
        cwd=folder,
        env={**os.environ, "HOLDFAST_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def put_back(checkpoint: Path, batch: int) -> None:
    for path in files_of_batch(batch):
        (checkpoint / path).write_bytes(FILES[path])


def test_batches_are_noted_as_they_come_until_it_is_stopped(
    checkpoint: Path, tmp_path: Path, home: Path, holdfast: Holdfast
) -> None:
    for batch in (10, 11):
        for path in files_of_batch(batch):
            (checkpoint / path).unlink()
    with going(tmp_path, home, "watch", "./ck", "--every", "20ms", "--json") as process:
        first = line(process)
        assert (first["event"], first["batch_id"]) == ("noted", 9)
        assert first["files"] > 20
        for batch in (10, 11):
            put_back(checkpoint, batch)
            while (noted := line(process))["batch_id"] < batch:
                pass
            assert noted["batches"] == 1
        busy = holdfast("watch", "./ck", "--once")
        assert busy.returncode == 4
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    said = json.loads(holdfast("checkpoint", "verify", "./ck", "--json").stdout)
    assert (said["ok"], said["recorded_batch"], said["remarks"]) == (True, NEWEST, [])
    shutil.copy(checkpoint / "state/0/0/11.delta", checkpoint / "state/0/0/12.delta")
    shutil.copy(checkpoint / "state/0/0/.11.delta.crc", checkpoint / "state/0/0/.12.delta.crc")
    damaged = holdfast("checkpoint", "verify", "./ck")
    assert damaged.returncode == 6
    assert damaged.stdout.startswith("state/0/0/12.delta\n  the file has the content of state/0/0/11.delta")
    # Whoever meant it says so.
    assert holdfast("watch", "./ck", "--once", "--reset").returncode == 0
    assert holdfast("checkpoint", "verify", "./ck").returncode == 0


def test_once(checkpoint: Path, holdfast: Holdfast, home: Path) -> None:
    said = holdfast("watch", "./ck", "--once")
    assert said.returncode == 0, said.stderr
    assert said.stdout.startswith("batch 11: ")
    assert json.loads(holdfast("watch", "./ck", "--once", "--json").stdout)["files"] == 0
    found = holdfast("checkpoint", "verify", "./ck")
    assert "compared with the record)" in found.stdout
    assert "note:" not in found.stdout
    assert list(home.glob("records/*.jsonl"))


def test_without_a_record_verify_says_what_it_could_not_look_for(
    checkpoint: Path, holdfast: Holdfast, home: Path
) -> None:
    said = holdfast("checkpoint", "verify", "./ck")
    assert said.returncode == 0
    assert "no integrity record of this checkpoint" in said.stdout
    assert not home.exists()


def test_no_record_is_begun_of_what_is_damaged(checkpoint: Path, holdfast: Holdfast, home: Path) -> None:
    change = checkpoint / "state/0/1/12.delta"
    change.write_bytes(change.read_bytes()[:-5])
    said = holdfast("watch", "./ck", "--once")
    assert said.returncode == 6
    assert "state/0/1/12.delta" in said.stderr
    assert RecordFile(record_path(home.resolve(), f"file://{checkpoint}")).read() is None


def test_where_there_is_no_checkpoint(holdfast: Holdfast) -> None:
    assert holdfast("watch", "./nothing", "--once").returncode == 3
    assert holdfast("watch", "nothing", "--once").returncode == 3
    assert holdfast("watch", "./nothing", "--every", "soon").returncode == 2


def test_savepoints_again_and_again(checkpoint: Path, tmp_path: Path, home: Path) -> None:
    for batch in (10, 11):
        for path in files_of_batch(batch):
            (checkpoint / path).unlink()
    words = ("savepoint", "take", "./ck", "sp", "--every", "50ms", "--keep", "2", "--json")
    with going(tmp_path, home, *words) as process:
        seen = [line(process)]
        for batch in (10, 11):
            put_back(checkpoint, batch)
            while (told := line(process))["savepoint"] is None:
                pass
            seen.append(told)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert [each["batch_id"] for each in seen] == [9, 10, 11]
    assert seen[-1]["removed"] == [seen[0]["savepoint_id"]]
    left = savepoints.list(tmp_path / "sp")
    assert [each.uri for each in left] == [each["savepoint"] for each in seen[1:]]
    assert all(savepoints.verify(each.uri).ok for each in left)


def test_what_cannot_go_together(checkpoint: Path, holdfast: Holdfast) -> None:
    for words in (("--keep", "3"), ("--every", "1m", "--batch", "9"), ("--every", "soon")):
        assert holdfast("savepoint", "take", "./ck", "sp", *words).returncode == 2
    assert holdfast("savepoint", "take", "./nothing", "sp", "--every", "1m").returncode == 3
    planned = holdfast("savepoint", "take", "./ck", "sp", "--every", "1m", "--dry-run", "--json")
    assert json.loads(planned.stdout)["batch_id"] == NEWEST
    assert holdfast("stop", "job", "--label", "x").returncode == 2
