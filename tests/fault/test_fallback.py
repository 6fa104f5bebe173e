"""A checkpoint that is damaged when its job is to be started again."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fallback_case import LIMIT_MS, Case, cut_short, newest_state_file
from running_job import JOBS, BatchLogs, running
from small_day import SmallDay, deliver, found_in_ledger

from holdfast import savepoints
from holdfast.config.policies import Recovery, recovery
from holdfast.errors import Conflict, Corrupt, HoldfastError
from holdfast.jobs.checkpoint_damage import look
from holdfast.jobs.recovery import StateSize
from holdfast.jobs.registry.registry import Registry
from holdfast.jobs.rollback import done, finish, under_way, unusable_fallback

pytestmark = pytest.mark.fault


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def test_a_whole_checkpoint_is_looked_at_and_the_job_goes_on(case: Case) -> None:
    outcome = case.run(Recovery(), ["die"], ["batch", "finish"])
    assert outcome.attempts == 2
    (found,) = Registry(case.home.registry).recoveries("job")
    assert found.size is not None
    # Two stores: the snapshots of version 8 with two data files each, and the changes of versions 9 to 12.
    snapshots = 3869 + 1289 + 1285 + 3871 + 1394 + 1369
    changes_of_both = 147 + 144 + 160 + 160 + 231 + 222 + 292 + 288
    assert found.size == StateSize(snapshots + changes_of_both, 8)


def test_a_job_whose_checkpoint_is_damaged_is_not_started_again(case: Case) -> None:
    damaged = newest_state_file(case.checkpoint)
    cut_short(damaged)
    before = {each: each.read_bytes() for each in case.checkpoint.rglob("*") if each.is_file()}
    with pytest.raises(Corrupt, match="is damaged, so the query was not restarted") as caught:
        case.run(Recovery(), ["die"], ["finish"])
    assert caught.value.where == f"{case.checkpoint.as_uri()}/{damaged.relative_to(case.checkpoint)}"
    assert f"--on-damage batch` from batch {case.newest - 1}" in (caught.value.hint or "")
    assert len(Registry(case.home.registry).attempts("job")) == 1
    assert Registry(case.home.registry).job("job").state.value == "FAILED"
    assert before == {each: each.read_bytes() for each in case.checkpoint.rglob("*") if each.is_file()}


def test_a_damaged_checkpoint_that_somebody_has_open_is_not_moved_aside(case: Case) -> None:
    cut_short(newest_state_file(case.checkpoint))
    before = {each: each.read_bytes() for each in case.checkpoint.rglob("*") if each.is_file()}
    script = "import sys; f = open(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(case.checkpoint / "metadata")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        with pytest.raises(Conflict, match="has the checkpoint open"):
            case.run(recovery(fallback="batch"), ["die"], ["batch", "finish"])
        other.communicate("")
    assert before == {each: each.read_bytes() for each in case.checkpoint.rglob("*") if each.is_file()}
    assert under_way(case.checkpoint.as_uri()) == []


def test_it_goes_back_to_the_newest_batch_that_is_whole(case: Case) -> None:
    damaged = newest_state_file(case.checkpoint).relative_to(case.checkpoint)
    cut_short(case.checkpoint / damaged)
    before = (case.checkpoint / damaged).read_bytes()
    case.run(recovery(fallback="batch"), ["die"], ["batch", "finish"])
    assert (case.aside / damaged).read_bytes() == before
    assert BatchLogs(case.checkpoint).newest == case.newest - 1
    assert look({"q": case.checkpoint.as_uri()}, case.home.path, LIMIT_MS)[0] == []
    assert case.event("went-back").facts["batch_id"] == case.newest - 1
    (found,) = Registry(case.home.registry).recoveries("job")
    assert found.went_back is not None
    # The driver of this test runs nothing again, so the note stays for the next one.
    (way,) = under_way(case.checkpoint.as_uri())
    assert (way.aside, way.newest) == (str(case.aside), case.newest)
    done(way)
    assert under_way(case.checkpoint.as_uri()) == []
    assert [each.name for each in case.checkpoint.parent.glob(".checkpoint*")] == [
        ".checkpoint.holdfast.lock"
    ]


def test_it_goes_back_to_the_newest_savepoint_that_is_whole(case: Case) -> None:
    catalog = case.checkpoint.parent / "savepoints"
    wanted = savepoints.take(case.checkpoint, catalog, batch=case.newest - 2)
    savepoints.take(case.checkpoint, catalog, batch=case.newest - 1)
    newest_manifest = max((catalog / "savepoints").iterdir())
    for each in newest_manifest.iterdir():
        each.write_bytes(b"{}")
    cut_short(newest_state_file(case.checkpoint))
    periodic = {"catalog": catalog.as_uri(), "every_ms": 3_600_000, "retained": 3}
    case.run(recovery(fallback="savepoint"), ["die"], ["batch", "finish"], savepoints=periodic)
    assert case.event("went-back").facts["savepoint"] == wanted.uri
    assert BatchLogs(case.checkpoint).newest == case.newest - 2
    assert case.aside.is_dir()


def test_without_anything_whole_it_stops_and_says_so(case: Case) -> None:
    cut_short(newest_state_file(case.checkpoint))
    with pytest.raises(Corrupt) as caught:
        case.run(recovery(fallback="savepoint"), ["die"], ["finish"])
    assert "the checkpoint has no savepoint" in (caught.value.found or "")
    assert list(case.checkpoint.parent.glob("checkpoint.damaged-*")) == []


def test_a_look_that_takes_too_long_is_broken_off(case: Case) -> None:
    cut_short(newest_state_file(case.checkpoint))
    damaged, (note,) = look({"q": case.checkpoint.as_uri()}, case.home.path, 0)
    assert damaged == []
    assert "the check of its checkpoint was not finished within the time limit" in note


def test_damage_to_older_batches_alone_is_told_and_does_not_stop_the_job(case: Case) -> None:
    logs = BatchLogs(case.checkpoint)
    (case.checkpoint / "commits" / str(min(logs.commits))).write_text("")
    damaged, notes = look({"q": case.checkpoint.as_uri()}, case.home.path, LIMIT_MS)
    assert damaged == []
    assert "only older batches need it" in notes[0]


@pytest.mark.parametrize("step", ["noted", "moved", "half made", "made"])
def test_a_way_back_that_was_killed_is_finished_by_the_next_supervisor(case: Case, step: str) -> None:
    catalog = case.checkpoint.parent / "savepoints"
    taken = savepoints.take(case.checkpoint, catalog, batch=case.newest - 1)
    stamp = "20260305T080000Z"
    uri, aside = case.checkpoint.as_uri(), case.checkpoint.with_name(f"checkpoint.damaged-{stamp}")
    note: dict[str, object] = {"query": "q", "stamp": stamp, "savepoint": taken.uri}
    note |= {"batch_id": case.newest - 1, "newest": case.newest}
    case.checkpoint.with_name(".checkpoint.holdfast.fallback.json").write_text(json.dumps(note))
    if step != "noted":
        case.checkpoint.rename(aside)
    if step in ("half made", "made"):
        savepoints.restore(taken.uri, case.checkpoint)
    if step == "half made":
        # The metadata is what comes last.
        (case.checkpoint / "metadata").unlink()
        (case.checkpoint / ".metadata.crc").unlink(missing_ok=True)
        shutil.rmtree(case.checkpoint / "commits")
    settings = {"catalog": catalog.as_uri(), "every_ms": 3_600_000, "retained": 3}
    assert case.run(Recovery(), ["finish"], savepoints=settings).attempts == 1
    assert aside.is_dir()
    assert BatchLogs(case.checkpoint).newest == case.newest - 1
    assert look({"q": uri}, case.home.path, LIMIT_MS)[0] == []
    (way,) = under_way(uri)
    finish(way, [])  # once more changes nothing, wherever the job's savepoints are by now
    assert BatchLogs(case.checkpoint).newest == case.newest - 1


def test_settings_that_cannot_be_right_are_refused() -> None:
    for wrong in ({"fallback": "yesterday"}, {"fallback": "batch", "verify": None}, {"verify": "soon"}):
        with pytest.raises(HoldfastError):
            Recovery(**wrong)


@pytest.mark.spark
def test_lost_batches_run_again_with_the_same_input_and_nothing_is_written_twice(tmp_path: Path) -> None:
    day = SmallDay.make(5)
    day.write(tmp_path / "whole")
    files = sorted((tmp_path / "whole" / "orders").iterdir())
    deliver(files[:3], tmp_path / "day" / "orders")
    (tmp_path / "out").mkdir()
    with running(JOBS / "appended.py:appended", tmp_path) as job:
        assert job.ended().code == 0
    checkpoint = tmp_path / "checkpoint"
    # Batch 1 writes version 2 of the state; batch 2 builds on it.
    for file in (checkpoint / "state" / "0").rglob("2_*.changelog"):
        cut_short(file)
    deliver(files[3:5], tmp_path / "day" / "orders")
    with running(JOBS / "appended.py:appended", tmp_path) as job:
        ended = job.ended()
    assert ended.code == 0, ended.words
    assert ended.only("restarting")["text"].startswith("appended: query changes: ")
    went_back = ended.only("went-back")
    assert (went_back["batch_id"], went_back["newest"]) == (0, 2)
    assert ended.only("repeated")["batches"] == 2
    assert "twice" not in ended.only("repeated")["text"]
    (attempt, _) = Registry(tmp_path / "home" / "registry.db").attempts("appended")[-2:]
    assert attempt.failure is not None
    assert attempt.failure.cause == "state"
    found = found_in_ledger(tmp_path / "out" / "changes.db", "SELECT account, orders, amount FROM changes")
    assert found == day.changes(5)
    assert list(tmp_path.glob(".checkpoint.holdfast.fallback*")) == []


def test_a_fallback_that_cannot_be_used_is_reported_before_it_is_needed() -> None:
    usable = ["file:///data/ck", "s3a://bucket/ck", "webhdfs://name:9870/ck", "gs://bucket/ck"]
    assert unusable_fallback("batch", usable) is None
    assert unusable_fallback(None, ["hdfs://name/ck"]) is None
    for other in ("hdfs://name/ck", "s3a://bucket"):
        warning = unusable_fallback("savepoint", [*usable, other])
        assert warning is not None
        assert f"fallback='savepoint' has no effect on {other}" in warning
        assert "holdfast restore" in warning
