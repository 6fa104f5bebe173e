"""Every stateful operator with its checkpoint on S3 and on HDFS: run, proved, saved, restored, rescaled.

What comes out is held against models in plain Python.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grid_queries
import pytest
from grid import WHOLE
from grid_queries import KINDS, Row
from grid_runs import PARTITIONS_KEY, PROVIDERS
from hdfs_cluster import JARS as HDFS_JARS
from hdfs_cluster import Cluster
from s3_gateway import CLOUD_JARS, S3A_JARS, Gateway

from holdfast import checkpoints, savepoints

pytestmark = [
    pytest.mark.spark,
    pytest.mark.services,
    pytest.mark.skipif(not WHOLE, reason="a part of the long form; HOLDFAST_GRID=all runs it"),
]

JOB = Path(__file__).parent / "jobs" / "grid_elsewhere.py"
SUPPORT = Path(__file__).parents[1] / "support"
FILES = 6
CASES = [
    (kind, provider)
    for kind in KINDS
    for provider in ("memory", "rocksdb2")
    if KINDS[kind].heap or provider != "memory"
]


class Elsewhere:
    """A place for checkpoints, and a process whose session reaches it.

    Args:
        verbs: The place as verbs name it.
        spark: The same as Spark names it.
        conf: What the session is told.
    """

    def __init__(self, verbs: str, spark: str, conf: dict[str, str]) -> None:
        self.verbs, self.spark = verbs, spark
        environment = {**os.environ, "PYTHONPATH": f"{SUPPORT}:{os.environ.get('PYTHONPATH', '')}"}
        self.process = subprocess.Popen(
            [sys.executable, str(JOB)],
            env={**environment, "PYSPARK_PYTHON": sys.executable},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._say({"conf": conf})

    def run(self, kind: str, folder: Path, name: str, conf: dict[str, str]) -> dict[int, list[Row]]:
        self._say({"kind": kind, "folder": str(folder), "checkpoint": f"{self.spark}/{name}", "conf": conf})
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the session has ended"
        return {int(batch): [tuple(row) for row in rows] for batch, rows in json.loads(line).items()}

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            # What a session that has ended was not told is still in the pipe.
            with suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()

    def _say(self, what: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()


@pytest.fixture(scope="module")
def on_s3(s3_gateway: Gateway) -> Iterator[Elsewhere]:
    conf = s3_gateway.spark_conf(S3A_JARS, CLOUD_JARS)
    bucket = s3_gateway.bucket()
    made = Elsewhere(bucket, bucket.replace("s3:", "s3a:"), conf)
    yield made
    made.end()


@pytest.fixture(scope="module")
def on_hdfs(hdfs_cluster: Cluster) -> Iterator[Elsewhere]:
    assert HDFS_JARS.exists()
    root = hdfs_cluster.root()
    made = Elsewhere(root, hdfs_cluster.native(root), {})
    yield made
    made.end()


@pytest.fixture(params=["s3", "hdfs"])
def elsewhere(request: pytest.FixtureRequest) -> Elsewhere:
    made: Elsewhere = request.getfixturevalue(f"on_{request.param}")
    return made


@pytest.mark.parametrize(("kind", "provider"), CASES)
def test_an_operator_and_the_verbs(
    elsewhere: Elsewhere, kind: str, provider: str, tmp_path: Path, s3_gateway: Gateway
) -> None:
    name = f"{kind}-{provider}"
    conf = {**PROVIDERS[provider], PARTITIONS_KEY: "2"}
    sides = grid_queries.files(7, FILES - 1, 20)
    folder = tmp_path / "in"
    for number in range(FILES // 2):
        grid_queries.write(folder, number, sides[number])
    first = elsewhere.run(kind, folder, name, conf)
    place = f"{elsewhere.verbs}/{name}"
    assert checkpoints.verify(place).problems == ()
    taken = savepoints.take(place, f"{elsewhere.verbs}/sp-{name}", deep=True)
    assert taken.manifest.batch_id == max(first)
    earlier = savepoints.take(place, f"{elsewhere.verbs}/sp-{name}", batch=max(first) - 1)
    assert savepoints.verify(taken.uri, deep=True).problems == ()

    restored = savepoints.restore(taken.uri, f"{place}-back")
    wider = savepoints.rescale(restored.checkpoint, f"{place}-wider", partitions=3, stopped=True)
    savepoints.restore(earlier.uri, f"{place}-earlier")
    assert checkpoints.verify(wider.checkpoint).problems == ()

    for number in range(FILES // 2, FILES):
        grid_queries.write(folder, number, sides[number])
    left = [event for one, _ in sides for event in one]
    right = [event for _, other in sides for event in other]
    expected = KINDS[kind].model(left, right)

    def ends(kept: dict[int, list[Row]], more: dict[int, list[Row]]) -> None:
        rows = [row for batch in sorted(kept) for row in kept[batch]]
        rows += [row for batch in sorted(more) for row in more[batch]]
        assert grid_queries.in_the_end(rows, KINDS[kind].key_columns) == expected

    ends(first, elsewhere.run(kind, folder, name, conf))
    ends(first, elsewhere.run(kind, folder, f"{name}-wider", {**conf, PARTITIONS_KEY: "3"}))
    before = {batch: rows for batch, rows in first.items() if batch < max(first)}
    ends(before, elsewhere.run(kind, folder, f"{name}-earlier", conf))
    for each in (name, f"{name}-wider", f"{name}-earlier"):
        assert checkpoints.verify(f"{elsewhere.verbs}/{each}").problems == ()
    if elsewhere.spark.startswith("s3a:"):
        bucket = elsewhere.verbs.removeprefix("s3://")
        renamed = [
            request
            for request in s3_gateway.requests(bucket)
            if request.verb == "CopyObject" and f"{name}/offsets/" in request.key
        ]
        assert renamed == []
