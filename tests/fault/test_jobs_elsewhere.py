"""Supervised jobs whose checkpoints are in a bucket and on HDFS: saved, their drivers killed, rescaled."""

from __future__ import annotations

import os
import signal
from collections import Counter
from functools import partial
from pathlib import Path

import httpx
import pytest
from hdfs_cluster import Cluster
from loopback import free_ports
from running_job import JOBS, QueryLogs, kill_at, running
from s3_gateway import CLOUD_JARS, S3A_JARS, Gateway
from small_day import BATCHES, TOTALS, Row, SmallDay, found_in_ledger

import holdfast as hf
from holdfast import checkpoints, savepoints
from holdfast.checkpoints.guard.checkpoint_lease import lease_note
from holdfast.jobs.registry.registry import job_id
from holdfast.storage import open_storage

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.fault]

SEED = 20261126
HALF = BATCHES // 2


def totals_in(place: Path) -> Counter[Row]:
    return found_in_ledger(place / "out" / "totals.db", TOTALS)


def test_in_a_bucket_it_is_saved_on_a_schedule_and_goes_on_after_a_kill_and_in_other_partitions(
    s3_gateway: Gateway, tmp_path: Path
) -> None:
    conf = {**s3_gateway.spark_conf(S3A_JARS, CLOUD_JARS), "spark.sql.shuffle.partitions": "2"}
    bucket = s3_gateway.bucket()
    checkpoint, wider, catalog = f"{bucket}/jobs/totals", f"{bucket}/jobs/wider", f"{bucket}/savepoints"
    day, place = SmallDay.make(SEED), tmp_path / "place"
    day.write(tmp_path / "day")
    orders = place / "day" / "orders"
    orders.mkdir(parents=True)
    (place / "out").mkdir()

    def bring(first: int, last: int) -> None:
        for number in range(first, last):
            (tmp_path / "day" / "orders" / f"{number:03d}.json").rename(orders / f"{number:03d}.json")

    (port,) = free_ports(1)
    start = partial(running, JOBS / "running_totals.py", place, conf=conf, port=port)
    settings = {
        "trigger": "100 milliseconds",
        "checkpoint.storage": checkpoint,
        "checkpoint.savepoints": catalog,
        "checkpoint.savepoint_every": "1s",
    }
    logs = QueryLogs(checkpoint)
    bring(0, HALF)
    with start(settings=settings, options=("--fall-back-to", "batch")) as job:
        # What is refused after damage is said at the start.
        spark_address = checkpoint.replace("s3:", "s3a:")
        assert f"fallback='batch' has no effect on {spark_address}" in job.await_event("caution")["text"]
        kill_at(job.driver(), lambda: logs.uncommitted and logs.newest > 0, "a batch is under way")
        job.driver(2)
        job.until(lambda: logs.commits >= set(range(HALF)), "half of it is read")
        job.await_event("savepoint")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            requirements = f"/jobs/{job_id('totals')}/resource-requirements"
            ((vertex, _),) = client.get(requirements).json().items()
            refused = client.put(requirements, json={vertex: {"parallelism": {"upperBound": 3}}})
        assert refused.status_code == 501
        assert "holdfast rescale --stopped" in refused.text
        os.kill(job.pid, signal.SIGTERM)
        assert job.ended().code == 0
    newest = savepoints.list(catalog)[0]
    assert newest.manifest is not None
    assert newest.manifest.label == "periodic"
    assert savepoints.verify(newest.uri, deep=True).ok
    assert lease_note(open_storage(checkpoint)) is None

    # What the refusal says to do.
    savepoints.rescale(checkpoint, wider, partitions=3, stopped=True)
    bring(HALF, BATCHES)
    with start(settings={**settings, "checkpoint.storage": wider}) as job:
        job.until(lambda: totals_in(place) == day.totals(), "all is read")
        os.kill(job.pid, signal.SIGTERM)
        assert job.ended().code == 0
    (operator,) = hf.state(wider).operators()
    assert operator.partitions == 3
    assert checkpoints.verify(wider).problems == ()


def test_on_hdfs_a_job_names_its_checkpoint_as_verbs_do(hdfs_cluster: Cluster, tmp_path: Path) -> None:
    """Spark cannot speak HTTP with HDFS, and verbs have no native client: both mean one place."""
    checkpoint = f"{hdfs_cluster.root()}/jobs/totals"
    day, place = SmallDay.make(SEED), tmp_path / "place"
    day.write(tmp_path / "day")
    orders = place / "day" / "orders"
    orders.mkdir(parents=True)
    (place / "out").mkdir()
    files = iter(sorted((tmp_path / "day" / "orders").iterdir()))
    logs = QueryLogs(checkpoint)

    def under_way() -> bool:
        """Bring a file whenever all is read, so that a slow look does not miss the last batch."""
        if not logs.uncommitted and (file := next(files, None)) is not None:
            file.rename(orders / file.name)
        return logs.uncommitted and logs.newest > 0

    settings = {"trigger": "100 milliseconds", "checkpoint.storage": checkpoint}
    with running(JOBS / "running_totals.py", place, settings=settings) as job:
        kill_at(job.driver(), under_way, "a batch is under way")
        job.driver(2)
        for file in files:
            file.rename(orders / file.name)
        job.until(lambda: totals_in(place) == day.totals(), "all is read")
        os.kill(job.pid, signal.SIGTERM)
        assert job.ended().code == 0
    assert totals_in(place) == day.totals()
    assert checkpoints.verify(checkpoint).problems == ()
    assert lease_note(open_storage(checkpoint)) is None
