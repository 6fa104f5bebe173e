"""What `hf.cost` says of requests and bytes, against what a real S3 server was asked and holds."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from s3_gateway import S3A_JARS, Gateway, Request, filesystem

import holdfast as hf
from holdfast.advice.usage import QueryShape, Requests, batch_requests, maintenance_requests, measure
from holdfast.config.spark_defaults import (
    CHANGELOG_KEY,
    FORMAT_KEY,
    MEMORY_PROVIDER,
    PROVIDER_KEY,
    RETAIN_KEY,
    ROCKSDB_PROVIDER,
    SHUFFLE_PARTITIONS_KEY,
    STATE_STORE,
)
from holdfast.external.view import open_checkpoint

pytestmark = [pytest.mark.spark, pytest.mark.services]

JOB = Path(__file__).parent / "jobs" / "counted_at_s3.py"
SUPPORT = Path(__file__).parents[1] / "support"
# The first batches make folders and schemas, and delete nothing yet.
FIRST, LAST = 10, 34
NEAR = 0.1
KINDS = {"PutObject": "writes", "CopyObject": "writes", "ListObjectsV2": "lists", "HeadObject": "reads"}
KINDS |= {"GetObject": "reads", "DeleteObject": "deletes"}
# What differs between the queries is what the model has a term for.
SHAPES = {
    "changes, two partitions": {
        PROVIDER_KEY: ROCKSDB_PROVIDER,
        CHANGELOG_KEY: "true",
        FORMAT_KEY: "2",
        SHUFFLE_PARTITIONS_KEY: "2",
    },
    "snapshots, three partitions": {
        PROVIDER_KEY: ROCKSDB_PROVIDER,
        CHANGELOG_KEY: "false",
        FORMAT_KEY: "2",
        SHUFFLE_PARTITIONS_KEY: "3",
    },
    "on the heap": {PROVIDER_KEY: MEMORY_PROVIDER, FORMAT_KEY: "1", SHUFFLE_PARTITIONS_KEY: "2"},
}
COMMON = {
    RETAIN_KEY: "4",
    f"{STATE_STORE}.minDeltasForSnapshot": "5",
    f"{STATE_STORE}.maintenanceInterval": "5s",
    "spark.ui.enabled": "false",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_requests_and_bytes_are_those_of_the_server(
    s3_gateway: Gateway, shape: str, record_property: Callable[[str, object], None]
) -> None:
    bucket = s3_gateway.bucket().removeprefix("s3://")
    run(s3_gateway, bucket, {**COMMON, **SHAPES[shape]})
    counted = between_batches(s3_gateway.requests(bucket))
    report = hf.cost(f"s3://{bucket}/checkpoint", interval="1 minute")

    # Bytes are those of every object below the checkpoint.
    held = sum(filesystem().du(f"{bucket}/checkpoint", total=False).values())
    assert held > 0
    assert report.checkpoint_bytes == pytest.approx(held, rel=NEAR)

    # The rest of a minute's maintenance is as often as it was here, which depends on how fast the machine is.
    batches = LAST - FIRST
    measured = measure(open_checkpoint(f"s3://{bucket}/checkpoint"))
    looks = sum(of_maintenance(request) for request in counted)
    passes = looks / (1 if measured.shape.rocksdb else 2)
    told = requests_of(measured.shape, batches, passes)
    asked = Counter(KINDS[request.verb] for request in counted)
    assert told.total == pytest.approx(len(counted), rel=NEAR)
    for kind in ("writes", "lists", "reads"):
        assert getattr(told, kind) == pytest.approx(asked[kind], rel=NEAR), kind
    # A maintenance deletes what several batches left: what one of them does may fall behind the last batch.
    at_once = told.deletes / max(passes, 1)
    assert told.deletes == pytest.approx(asked["deletes"], rel=NEAR, abs=at_once)
    assert report.requests is not None
    assert report.requests.per_batch == batch_requests(measured.shape)
    for name, figure in (("counted", len(counted)), ("told", round(told.total)), ("bytes", held)):
        record_property(name, figure)
    record_property("bytes told", report.checkpoint_bytes)


def run(gateway: Gateway, bucket: str, conf: dict[str, str]) -> None:
    """The query, in a process of its own with the jars that reach S3."""
    asked = {
        "conf": {**gateway.spark_conf(S3A_JARS), **conf},
        "checkpoint": f"s3a://{bucket}/checkpoint",
        "batches": LAST + 1,
    }
    environment = {**os.environ, "PYTHONPATH": str(SUPPORT), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, str(JOB), json.dumps(asked)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def between_batches(requests: Sequence[Request]) -> list[Request]:
    """The requests from the planning of the first batch that counts to that of the last one."""
    at = {
        int(match[1]): index
        for index, request in enumerate(requests)
        if request.verb == "CopyObject" and (match := re.search(r"/offsets/(\d+)$", request.key))
    }
    return list(requests[at[FIRST] : at[LAST]])


def of_maintenance(request: Request) -> bool:
    """Whether it is the look at the first store with which a maintenance begins."""
    return request.why == "op_list_status" and request.key == "checkpoint/state/0/0/"


def requests_of(shape: QueryShape, batches: int, passes: float) -> Requests:
    """What the model says of so many batches and passes of the maintenance."""
    interval_ms = 1000.0
    timed = replace(shape, maintenance_ms=round(interval_ms * batches / max(passes, 1)))
    return batch_requests(shape).times(batches) + maintenance_requests(timed, interval_ms).times(passes)
