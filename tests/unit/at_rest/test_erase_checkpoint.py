"""A key erased from a stopped query's checkpoint: from its newest batch, and older ones are given up."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command import Holdfast
from mended import all_rows, leaks

import holdfast as hf
from golden import golden_on_disk
from holdfast import checkpoints, savepoints
from holdfast.errors import Conflict
from holdfast.ownership.checkpoint_lock import lock_path
from holdfast.storage.local import LocalStorage

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("guards_wait_no_time")]

C3 = "c3\0\0\0\0\0\0"


@pytest.mark.parametrize("name", ["4.2/aggregate-memory", "4.2/state-format2", "4.2/join-format2"])
def test_nothing_of_it_is_left_there_either(name: str, tmp_path: Path) -> None:
    checkpoint = golden_on_disk(name, tmp_path / "ck")
    savepoints.take(checkpoint, tmp_path / "sp")
    before, rows = checkpoints.read(checkpoint), all_rows(LocalStorage(checkpoint))
    assert leaks(checkpoint, C3)
    found = hf.erase("c3", everywhere=tmp_path / "sp", checkpoint=checkpoint, who="ada@desk", stopped=True)
    assert found.searched[0].place == f"file://{checkpoint}"
    assert found.searched[0].touched
    assert leaks(tmp_path, C3) == []
    after = checkpoints.read(checkpoint)
    assert (after.batch_id, after.query_id, after.watermark_ms) == (
        before.batch_id,
        before.query_id,
        before.watermark_ms,
    )
    assert after.committed[-1] == before.committed[-1]
    assert all_rows(LocalStorage(checkpoint)) == {row: n for row, n in rows.items() if "'c3'" not in row}
    assert checkpoints.verify(checkpoint).ok
    # Paths to schemas lead to the checkpoint itself, and not to where it was made.
    assert not leaks(checkpoint, ".holdfast-erase")
    assert sorted(each.name for each in tmp_path.iterdir() if not each.name.endswith(".lock")) == ["ck", "sp"]


def test_a_checkpoint_in_use_is_refused(tmp_path: Path) -> None:
    checkpoint = golden_on_disk("4.2/aggregate-memory", tmp_path / "ck")
    savepoints.take(checkpoint, tmp_path / "sp")
    lock = lock_path(f"file://{checkpoint}", tmp_path)
    script = (
        f"import fcntl,os,sys; d=os.open({str(lock)!r}, os.O_RDWR|os.O_CREAT); fcntl.lockf(d, fcntl.LOCK_EX);"
        " print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        for act in (
            lambda: hf.erase("c3", everywhere=tmp_path / "sp", checkpoint=checkpoint, stopped=True),
            lambda: hf.edit(checkpoint, "aggregate", key="c1", delete=True, to=tmp_path / "sp"),
        ):
            with pytest.raises(Conflict, match="in use"):
                act()
        holder.communicate("")
    assert leaks(checkpoint, C3)


def test_a_yes_does_not_say_that_the_query_is_stopped(
    holdfast: Holdfast, holdfast_at_once: Holdfast, tmp_path: Path
) -> None:
    checkpoint = golden_on_disk("4.2/aggregate-memory", tmp_path / "ck")
    savepoints.take(checkpoint, tmp_path / "sp")
    words = ("state", "erase", "sp", "c3", "--checkpoint", "./ck")
    newest = checkpoints.read(checkpoint).batch_id
    for more in (("--yes",), ("--yes", "--json"), ()):
        answer = holdfast(*words, *more)
        assert answer.returncode == 4
        assert "a query may still be using the checkpoint" in answer.stderr
        assert f"newest committed batch: {newest}, " in answer.stderr
        assert "--confirm-stopped" in answer.stderr
    shown = holdfast(*words, "--dry-run")
    assert (shown.returncode, f"newest committed batch: {newest}, " in shown.stdout) == (0, True)
    told = json.loads(holdfast(*words, "--dry-run", "--json").stdout)
    assert told["usage"]["committed_batch"] == newest
    assert leaks(checkpoint, C3)
    done = holdfast_at_once(*words, "--yes", "--confirm-stopped")
    assert done.returncode == 0, done.stderr
    assert leaks(tmp_path, C3) == []


def test_a_batch_under_way_is_refused(tmp_path: Path) -> None:
    checkpoint = golden_on_disk("4.2/aggregate-memory", tmp_path / "ck")
    newest = checkpoints.read(checkpoint).committed[-1]
    (checkpoint / f"commits/{newest}").unlink()
    (checkpoint / f"commits/.{newest}.crc").unlink()
    with pytest.raises(Conflict, match="the checkpoint has an uncommitted batch"):
        hf.edit(checkpoint, "aggregate", key="c1", delete=True, to=tmp_path / "sp")
    assert not (tmp_path / "sp").exists()


def test_an_edit_of_a_checkpoint_makes_two_savepoints_or_none(tmp_path: Path) -> None:
    checkpoint = golden_on_disk("4.2/aggregate-memory", tmp_path / "ck")
    before = {file: file.read_bytes() for file in checkpoint.rglob("*") if file.is_file()}
    made = hf.edit(checkpoint, "aggregate", key="c1", set={"count": 5}, to=tmp_path / "sp", why="for a test")
    assert [each.manifest and each.manifest.changed for each in savepoints.list(tmp_path / "sp")] == [
        False,
        True,
    ]
    assert hf.undo(made.uri).plan.back_to == made.plan.savepoint
    with pytest.raises(hf.Invalid):
        hf.edit(checkpoint, "aggregate", where="false", delete=True, to=tmp_path / "other")
    assert savepoints.list(tmp_path / "other") == ()
    plan = hf.plan_edit(checkpoint, "aggregate", key="c1", delete=True, to=tmp_path / "third")
    assert plan.savepoint == f"file://{checkpoint}"
    assert not (tmp_path / "third").exists()
    assert before == {file: file.read_bytes() for file in checkpoint.rglob("*") if file.is_file()}
