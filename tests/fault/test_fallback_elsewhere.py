"""A damaged checkpoint in a bucket and on HDFS, where it is replaced by a successor."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from cloud_emulators import Emulator
from fallback_case import GOLDEN, LIMIT_MS, Case
from hdfs_cluster import Cluster
from running_job import JOBS, QueryLogs, RunningJob, running
from s3_gateway import CLOUD_JARS, S3A_JARS, Gateway
from small_day import SmallDay, deliver, found_in_ledger
from small_session import small_session

import holdfast as hf
from golden import golden_files, without_checksums
from holdfast import checkpoints, savepoints
from holdfast.checkpoints.checkpoint import read
from holdfast.config.policies import Recovery, recovery
from holdfast.errors import Conflict, Corrupt, Unavailable
from holdfast.jobs.checkpoint_damage import CheckpointDamage, look
from holdfast.jobs.registry.registry import Registry
from holdfast.jobs.rollback import done, finish, go_back, under_way
from holdfast.ownership.checkpoint_guard import guarded
from holdfast.ownership.checkpoint_lease import lease_of
from holdfast.ownership.lease import Lease
from holdfast.savepoints.savepoint_api import restore_once
from holdfast.storage import open_storage
from holdfast.storage.port import files_below
from holdfast.storage.successors import (
    current_address,
    first_address,
    list_successors,
    publish_successor,
    require_current,
    retire,
)

pytestmark = [pytest.mark.services, pytest.mark.fault]

NOTE = ".checkpoint.holdfast.fallback.json"


@pytest.fixture
def case(tmp_path: Path, above: str) -> Case:
    """A job whose checkpoint is there, as Spark's file systems leave it."""
    made = Case(tmp_path, f"{above}/jobs/checkpoint")
    storage = open_storage(made.uri)
    for path, data in without_checksums(golden_files(GOLDEN)).items():
        storage.write(path, data)
    return made


def damage(uri: str) -> str:
    """Cut a state file of the newest batch short, and return its path."""
    storage = open_storage(uri)
    path = read(storage).operators[0].stores[0].files[-1].render()
    data = storage.read(path)
    storage.write(path, data[: len(data) // 2], replace=True)
    return path


def beside(case: Case) -> set[str]:
    """The names next to the checkpoint."""
    return set(open_storage(case.uri.rpartition("/")[0]).list().names)


def test_it_goes_back_to_the_newest_whole_batch_in_a_successor_and_again(case: Case) -> None:
    damaged = damage(case.uri)
    before = open_storage(case.uri).read(damaged)
    query_id = checkpoints.read(case.uri).query_id
    case.run(recovery(fallback="batch"), ["die"], ["batch", "finish"])
    successor = f"{case.uri}.r1"
    assert current_address(case.uri) == successor
    assert QueryLogs(successor).newest == case.newest - 1
    assert look({"q": successor}, case.home.path, LIMIT_MS)[0] == []
    assert open_storage(case.uri).read(damaged) == before
    went = case.event("went-back").facts
    assert (went["checkpoint"], went["aside"], went["batch_id"]) == (successor, case.uri, case.newest - 1)
    # Commands take the address that the job was given.
    assert checkpoints.read(case.uri).uri == successor
    assert checkpoints.read(case.uri).query_id == query_id
    assert savepoints.take(case.uri, f"{case.uri}-sp").manifest.checkpoint == successor
    # The driver of this test runs nothing again, so the note stays for the next one.
    (way,) = under_way(case.uri)
    assert (way.checkpoint, way.newest) == (successor, case.newest)
    done(way)
    left = open_storage(f"{case.uri.rpartition(chr(47))[0]}/.checkpoint.holdfast.fallback")
    assert NOTE not in beside(case)
    assert list(files_below(left)) == []

    # Once more, from the successor, to a savepoint of its time.
    catalog = f"{case.uri}-sp"
    damage(successor)
    case.events.clear()
    case.script.with_suffix(".count").unlink()
    settings = {"catalog": catalog, "every_ms": 3_600_000, "retained": 3}
    fallback = recovery(fallback="savepoint")
    case.run(fallback, ["die"], ["batch", "finish"], savepoints=settings)
    assert current_address(case.uri) == current_address(successor) == f"{case.uri}.r2"
    assert QueryLogs(f"{case.uri}.r2").newest == case.newest - 1
    assert case.event("went-back").facts["aside"] == successor


def test_a_job_without_a_fallback_is_not_started_and_nothing_changes(case: Case) -> None:
    damage(case.uri)
    before = beside(case)
    with pytest.raises(Corrupt, match="is damaged, so the query was not restarted"):
        case.run(Recovery(), ["die"], ["finish"])
    assert current_address(case.uri) == case.uri
    assert beside(case) - before <= {".checkpoint.holdfast.lease"}


@pytest.mark.parametrize("step", ["noted", "half made", "made", "published", "retired"])
def test_a_fallback_that_was_killed_is_finished_by_the_next_supervisor(case: Case, step: str) -> None:
    catalog, successor = f"{case.uri}-sp", f"{case.uri}.r1"
    taken = savepoints.take(case.uri, catalog, batch=case.newest - 1)
    note: dict[str, object] = {"query": "q", "stamp": "20260305T080000Z", "savepoint": taken.uri}
    note |= {"batch_id": case.newest - 1, "newest": case.newest, "number": 1}
    parent = open_storage(case.uri.rpartition("/")[0])
    parent.write(NOTE, json.dumps(note).encode())
    if step != "noted":
        restore_once(taken.uri, successor)
    if step == "half made":
        # The metadata is what comes last.
        open_storage(successor).delete("metadata")
        open_storage(successor).delete("commits/0")
    if step in ("published", "retired"):
        publish_successor(case.uri, 1, "damaged")
    if step == "retired":
        retire(open_storage(case.uri), successor)
    settings = {"catalog": catalog, "every_ms": 3_600_000, "retained": 3}
    assert case.run(Recovery(), ["finish"], savepoints=settings).attempts == 1
    assert current_address(case.uri) == successor
    assert QueryLogs(successor).newest == case.newest - 1
    assert look({"q": successor}, case.home.path, LIMIT_MS)[0] == []
    assert b"was replaced" in open_storage(case.uri).read("metadata")
    (way,) = under_way(case.uri)
    finish(way, [])  # once more changes nothing, wherever the job's savepoints are by now
    assert list_successors(case.uri) == [1]


def damaged_at(case: Case) -> CheckpointDamage:
    """The damage as a look before a restart finds it."""
    ((found,), _) = look({"q": case.uri}, case.home.path, LIMIT_MS)
    return found


def test_a_supervisor_without_the_lease_publishes_nothing(case: Case) -> None:
    damage(case.uri)

    def lost() -> None:
        raise Unavailable("the lease of the checkpoint was lost")

    with pytest.raises(Unavailable):
        go_back(damaged_at(case), "batch", [], 1_800_000_000_000, "job.py", lost)
    assert current_address(case.uri) == case.uri
    # The next supervisor, which has it, finishes what was begun.
    (way,) = under_way(case.uri)
    finish(way, [])
    assert current_address(case.uri) == way.checkpoint == f"{case.uri}.r1"


def test_a_checkpoint_that_a_query_continues_is_not_replaced(case: Case) -> None:
    damage(case.uri)
    storage = open_storage(case.uri)

    def lost() -> None:
        raise Unavailable("the supervisor was killed here")

    with pytest.raises(Unavailable):
        go_back(damaged_at(case), "batch", [], 1_800_000_000_000, "job.py", lost)
    for log in ("offsets", "commits"):
        storage.write(f"{log}/{case.newest + 1}", storage.read(f"{log}/{case.newest}"))
    (way,) = under_way(case.uri)
    with pytest.raises(Conflict, match="has continued the damaged checkpoint"):
        finish(way, [])
    assert current_address(case.uri) == case.uri


@pytest.mark.parametrize(
    "wrong", [{"number": 0}, {"number": "1"}, {"number": None}, {"stamp": "x"}, {"query": 7}], ids=str
)
def test_a_note_with_other_values_is_refused(case: Case, wrong: dict[str, object]) -> None:
    note: dict[str, object] = {"query": "q", "stamp": "20260305T080000Z", "savepoint": f"{case.uri}-sp/x"}
    note |= {"batch_id": 1, "newest": 2, "number": 1, **wrong}
    parent = open_storage(case.uri.rpartition("/")[0])
    parent.write(NOTE, json.dumps({**note, "checkpoint": "s3a://elsewhere/x"}).encode())
    with pytest.raises(Corrupt, match="the file of an unfinished fallback is damaged"):
        under_way(case.uri)


def test_what_a_successor_means_to_others(case: Case) -> None:
    storage, successor = open_storage(case.uri), f"{case.uri}.r1"
    taken = savepoints.take(case.uri, f"{case.uri}-sp")
    savepoints.restore(taken.uri, successor)
    assert first_address(successor) == successor  # a directory of this name alone is a checkpoint of its own
    publish_successor(case.uri, 1, "test")
    with pytest.raises(Conflict):
        publish_successor(case.uri, 1, "a second process")
    retire(storage, successor)
    retired = storage.read("metadata")
    retire(storage, successor)
    assert storage.read("metadata") == retired
    assert json.loads(retired)["former_id"] == taken.manifest.query_id
    assert require_current(case.uri) == successor
    # Of the replaced one, commands say what replaced it.
    with pytest.raises(Conflict, match="was replaced"):
        read(storage)
    # A restore to its address would not be used by the job.
    for path in ("metadata", *(f"offsets/{name}" for name in storage.list("offsets").names)):
        storage.delete(path)
    with pytest.raises(Conflict, match="a job would not use a new one"):
        savepoints.restore(taken.uri, case.uri)
    # Who holds the lease of the first address has its successor.
    election = lease_of(case.uri, "an owner", 2.0)
    assert election is not None
    term = election.campaign()
    assert term is not None
    lease = Lease(election, term, time.monotonic)
    with (
        pytest.raises(Conflict, match="a different process owns the checkpoint"),
        guarded(open_storage(successor), "rescale", stopped=True, hint=""),
    ):
        pass
    lease.release()
    # A successor that is missing is no start from scratch.
    open_storage(successor).delete("metadata")
    with pytest.raises(Corrupt, match="is missing"):
        require_current(case.uri)


PLAIN = """
import json, sys
from pyspark.sql import SparkSession

conf, checkpoint = json.loads(sys.argv[1]), sys.argv[2]
builder = SparkSession.builder.master("local[1]")
for key, value in conf.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
rows = spark.readStream.format("rate").load().groupBy("value").count()
query = rows.writeStream.format("noop").outputMode("update").option("checkpointLocation", checkpoint)
try:
    query.start().awaitTermination()
except Exception as error:
    sys.stdout.write("refused: " + str(error))
"""


def killed_before_it_is_published(job: RunningJob, first: str) -> None:
    """Kill a supervisor within its fallback, after the note and before the successor is published."""
    parent = open_storage(first.rpartition("/")[0])

    def within() -> bool:
        return parent.size(NOTE) is not None and not list_successors(first)

    while True:
        job.until(within, "the fallback has begun")
        os.kill(job.pid, signal.SIGSTOP)
        if within():
            return job.kill()
        os.kill(job.pid, signal.SIGCONT)


@pytest.mark.spark
def test_after_a_kill_lost_batches_run_again_in_a_bucket_and_nothing_is_written_twice(
    s3_gateway: Gateway, tmp_path: Path
) -> None:
    conf = s3_gateway.spark_conf(S3A_JARS, CLOUD_JARS)
    check_lost_batches(f"{s3_gateway.bucket().replace('s3:', 's3a:')}/jobs/checkpoint", conf, tmp_path)


@pytest.mark.spark
def test_after_a_kill_lost_batches_run_again_on_google_cloud_storage_and_nothing_is_written_twice(
    gcs: Emulator, tmp_path: Path
) -> None:
    check_lost_batches(f"{gcs.bucket()}/jobs/checkpoint", gcs.spark_conf(), tmp_path)


@pytest.mark.spark
def test_after_a_kill_lost_batches_run_again_on_hdfs_and_nothing_is_written_twice(
    hdfs_cluster: Cluster, tmp_path: Path
) -> None:
    checkpoint = f"{hdfs_cluster.root()}/jobs/checkpoint"
    check_lost_batches(checkpoint, {}, tmp_path, hdfs_cluster.native(checkpoint))


def check_lost_batches(first: str, conf: dict[str, str], folder: Path, native: str | None = None) -> None:
    """Damage the checkpoint of a real query, kill its supervisor in the fallback, and let it go on."""
    day = SmallDay.make(5)
    day.write(folder / "whole")
    files = sorted((folder / "whole" / "orders").iterdir())
    deliver(files[:3], folder / "day" / "orders")
    (folder / "out").mkdir()
    target, settings = JOBS / "appended.py:appended", {"checkpoint.storage": first}
    with running(target, folder, settings=settings, conf=conf) as job:
        ended = job.ended()
        assert ended.code == 0, ended.words
    storage = open_storage(first)
    partitions = [name for name in storage.list("state/0").names if name.isdecimal()]
    for partition in [f"state/0/{name}" for name in partitions]:
        for name in storage.list(partition).names:
            # Batch 1 writes version 2 of the state; batch 2 builds on it.
            if name.startswith("2_") and name.endswith(".changelog"):
                path = f"{partition}/{name}"
                storage.write(path, storage.read(path)[:20], replace=True)
    deliver(files[3:5], folder / "day" / "orders")
    with running(target, folder, settings=settings, conf=conf) as job:
        killed_before_it_is_published(job, first)
    assert current_address(first) == first
    with running(target, folder, settings=settings, conf=conf) as job:
        ended = job.ended()
    assert ended.code == 0, ended.words
    successor = f"{first}.r1"
    assert current_address(first) == successor
    assert ended.only("repeated")["batches"] == 2
    found = found_in_ledger(folder / "out" / "changes.db", "SELECT account, orders, amount FROM changes")
    assert found == day.changes(5)
    assert checkpoints.verify(first).problems == ()
    assert QueryLogs(successor).newest == 4
    (query,) = Registry(folder / "home" / "registry.db").queries("appended")
    assert query.checkpoint == successor

    # An account is erased from the stopped job's checkpoint, and the job goes on from what replaced it.
    erased = min(each.account for each in day.orders[5])
    savepoints.take(first, f"{first}-sp")
    report = hf.erase(erased, everywhere=f"{first}-sp", column="account", checkpoint=first, stopped=True)
    assert (report.searched[0].place, report.searched[0].successor) == (successor, f"{first}.r2")
    deliver(files[5:6], folder / "day" / "orders")
    with running(target, folder, settings=settings, conf=conf) as job:
        ended = job.ended()
    assert ended.code == 0, ended.words
    amounts = [each.amount for each in day.orders[5] if each.account == erased]
    expected = Counter({row: n for row, n in day.changes(6).items() if row[0] != erased})
    expected.update({row: n for row, n in day.changes(5).items() if row[0] == erased})
    expected[(erased, len(amounts), sum(amounts))] += 1
    found = found_in_ledger(folder / "out" / "changes.db", "SELECT account, orders, amount FROM changes")
    assert found == expected

    planned = QueryLogs(first).offsets
    # A query that is started at the former address without Holdfast is refused by Spark.
    said = subprocess.run(
        [sys.executable, "-c", PLAIN, json.dumps({**small_session(), **conf}), native or first],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    ).stdout
    assert said.startswith("refused: ")
    assert "this checkpoint was replaced, start the query with checkpoint.r1" in said
    assert QueryLogs(first).offsets == planned
