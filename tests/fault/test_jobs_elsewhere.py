"""Supervised jobs whose checkpoints are in a bucket and on HDFS: saved, their drivers killed, rescaled."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path

import httpx
import pytest
from hdfs_cluster import Cluster
from loopback import free_ports
from running_job import JOBS, QueryLogs, RunningJob, kill_at, running
from s3_gateway import CLOUD_JARS, S3A_JARS, Gateway
from small_day import BATCHES, TOTALS, Row, SmallDay, found_in_ledger

import holdfast as hf
from holdfast import checkpoints, savepoints
from holdfast.jobs.registry.registry import job_id
from holdfast.ownership.checkpoint_lease import lease_note
from holdfast.storage import open_storage
from holdfast.storage.successors import current_address

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.fault]

SEED = 20261126
HALF = BATCHES // 2


def arriving(folder: Path) -> tuple[SmallDay, Path, Callable[[int], None]]:
    """A day, the place of a job over it, and what brings so many more of its files there."""
    day, place = SmallDay.make(SEED), folder / "place"
    day.write(folder / "day")
    orders = place / "day" / "orders"
    orders.mkdir(parents=True)
    (place / "out").mkdir()
    files = iter(sorted((folder / "day" / "orders").iterdir()))

    def bring(count: int) -> None:
        for file in islice(files, count):
            file.rename(orders / file.name)

    return day, place, bring


def totals_in(place: Path) -> Counter[Row]:
    return found_in_ledger(place / "out" / "totals.db", TOTALS)


def rescale_to_three(job: RunningJob, port: int) -> None:
    """Rescale a running job; a successor replaces its checkpoint."""
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        requirements = f"/jobs/{job_id('totals')}/resource-requirements"
        ((vertex, _),) = client.get(requirements).json().items()
        asked = client.put(requirements, json={vertex: {"parallelism": {"upperBound": 3}}})
    assert asked.is_success, asked.text
    rescaled = job.await_event("rescaled")
    assert rescaled["text"] == "totals: rescaled", rescaled


def test_in_a_bucket_it_is_saved_on_a_schedule_and_goes_on_after_a_kill_and_in_other_partitions(
    s3_gateway: Gateway, tmp_path: Path
) -> None:
    conf = {**s3_gateway.spark_conf(S3A_JARS, CLOUD_JARS), "spark.sql.shuffle.partitions": "2"}
    bucket = s3_gateway.bucket()
    checkpoint, wider, catalog = f"{bucket}/jobs/totals", f"{bucket}/jobs/wider", f"{bucket}/savepoints"
    day, place, bring = arriving(tmp_path)
    (port,) = free_ports(1)
    start = partial(running, JOBS / "running_totals.py", place, conf=conf, port=port)
    settings = {
        "trigger": "100 milliseconds",
        "checkpoint.storage": checkpoint,
        "checkpoint.savepoints": catalog,
        "checkpoint.savepoint_every": "1s",
    }
    logs, spark_address = QueryLogs(checkpoint), checkpoint.replace("s3:", "s3a:")
    bring(HALF)
    with start(settings=settings, options=("--on-damage", "batch")) as job:
        kill_at(job.driver(), lambda: logs.uncommitted and logs.newest > 0, "a batch is under way")
        job.driver(2)
        job.until(lambda: logs.commits >= set(range(HALF)), "half of it is read")
        job.await_event("savepoint")
        rescale_to_three(job, port)
        assert current_address(spark_address) == f"{spark_address}.r1"
        job.driver(3)
        brought = HALF + 2
        bring(brought - HALF)
        live = QueryLogs(f"{checkpoint}.r1")
        job.until(lambda: brought - 1 in live.commits, "the rescaled job goes on")
        os.kill(job.pid, signal.SIGTERM)
        assert job.ended().code == 0
    newest = savepoints.list(catalog)[0]
    assert newest.manifest is not None
    assert newest.manifest.label == "periodic"
    assert savepoints.verify(newest.uri, deep=True).ok
    assert lease_note(open_storage(checkpoint)) is None

    (operator,) = hf.state(checkpoint).operators()
    assert operator.partitions == 3
    savepoints.rescale(checkpoint, wider, partitions=5, stopped=True)
    bring(BATCHES)
    with start(settings={**settings, "checkpoint.storage": wider}) as job:
        job.until(lambda: totals_in(place) == day.totals(), "all is read")
        os.kill(job.pid, signal.SIGTERM)
        assert job.ended().code == 0
    (operator,) = hf.state(wider).operators()
    assert operator.partitions == 5
    assert checkpoints.verify(wider).problems == ()


def test_on_hdfs_a_job_names_its_checkpoint_as_verbs_do(hdfs_cluster: Cluster, tmp_path: Path) -> None:
    """Spark cannot speak HTTP with HDFS, and verbs have no native client: both mean one place."""
    checkpoint = f"{hdfs_cluster.root()}/jobs/totals"
    day, place, bring = arriving(tmp_path)
    logs = QueryLogs(checkpoint)

    def under_way() -> bool:
        """Bring a file whenever all is read, so that a slow look does not miss the last batch."""
        if not logs.uncommitted:
            bring(1)
        return logs.uncommitted and logs.newest > 0

    settings = {"trigger": "100 milliseconds", "checkpoint.storage": checkpoint}
    with running(JOBS / "running_totals.py", place, settings=settings) as job:
        kill_at(job.driver(), under_way, "a batch is under way")
        job.driver(2)
        bring(BATCHES)
        job.until(lambda: totals_in(place) == day.totals(), "all is read")
        os.kill(job.pid, signal.SIGTERM)
        assert job.ended().code == 0
    assert totals_in(place) == day.totals()
    assert checkpoints.verify(checkpoint).problems == ()
    assert lease_note(open_storage(checkpoint)) is None


def test_on_hdfs_a_running_job_gets_other_partitions_and_goes_on_after_a_kill(
    hdfs_cluster: Cluster, tmp_path: Path
) -> None:
    checkpoint = f"{hdfs_cluster.root()}/jobs/totals"
    successor = f"{checkpoint}.r1"
    day, place, bring = arriving(tmp_path)
    (port,) = free_ports(1)
    settings = {"trigger": "100 milliseconds", "checkpoint.storage": checkpoint}
    conf = {"spark.sql.shuffle.partitions": "2"}
    logs, live = QueryLogs(checkpoint), QueryLogs(successor)
    bring(HALF)
    with running(JOBS / "running_totals.py", place, settings=settings, conf=conf, port=port) as job:
        job.until(lambda: logs.commits >= set(range(HALF)), "half of it is committed")
        rescale_to_three(job, port)
        assert current_address(checkpoint) == successor
        job.driver(2)
        bring(1)
        job.until(lambda: HALF in live.commits, "the rescaled job goes on")

        def under_way() -> bool:
            if not live.uncommitted:
                bring(1)
            return live.uncommitted

        kill_at(job.driver(2), under_way, "a batch of the rescaled job is under way")
        job.driver(3)
        bring(BATCHES)
        job.until(lambda: totals_in(place) == day.totals(), "all is read")
        os.kill(job.pid, signal.SIGTERM)
        assert job.ended().code == 0
    assert totals_in(place) == day.totals()
    (operator,) = hf.state(checkpoint).operators()
    assert operator.partitions == 3
    assert checkpoints.verify(checkpoint).problems == ()
    assert logs.commits == set(range(HALF))
    assert lease_note(open_storage(checkpoint)) is None
