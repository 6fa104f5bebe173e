"""One contract for every backend: Spark's operators, restarts, batches that run again, kills."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import grid_queries
import pytest
from grid_queries import KINDS
from grid_runs import PARTITIONS_KEY, PROVIDERS, run
from pyspark.errors import StreamingQueryException
from redis_server import RedisServer
from tikv_server import RUN

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.services]

BACKENDS = ["memory", "rocksdb", "redis", "cassandra", "tikv"]
# State-checkpoint format 1 writes the files of a batch that runs again under the names of its first run.
REPEATED = [*BACKENDS, "rocksdb1"]
OPERATORS = ["aggregate", "window", "session", "dedupe", "join"]
Settings = Callable[[dict[str, str]], None]


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> dict[str, str]:
    """The settings of a backend."""
    if request.param == "redis":
        return hf.Redis(request.getfixturevalue("redis_server").address).spark_conf()
    if request.param == "cassandra":
        address = request.getfixturevalue("cassandra_server").address
        return hf.Cassandra(address, replication=1).spark_conf()
    if request.param == "tikv":
        return hf.TiKV(request.getfixturevalue("moving_tikv"), prefix=RUN).spark_conf()
    return PROVIDERS[{"rocksdb": "rocksdb2"}.get(request.param, request.param)]


@pytest.mark.parametrize("kind", OPERATORS)
def test_a_query_is_exact_over_restarts_and_batches_that_run_again(
    spark: SparkSession, settings: Settings, backend: dict[str, str], tmp_path: Path, kind: str
) -> None:
    """A batch whose state is committed runs again where a driver dies before it notes the batch."""
    settings({**backend, PARTITIONS_KEY: "2"})
    made = grid_queries.files(3, count=2, size=40)
    checkpoint = tmp_path / "checkpoint"
    rows, again = [], []
    for number, sides in enumerate(made):
        grid_queries.write(tmp_path, number, sides)
        rows.append(run(spark, kind, tmp_path, checkpoint))
        newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        newest.unlink()
        newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
        again.append(run(spark, kind, tmp_path, checkpoint))
    for first, second in zip(rows, again, strict=True):
        assert sorted(second, key=repr) == sorted(first[-len(second) :] if second else [], key=repr)
    left, right = ([event for sides in made for event in sides[side]] for side in (0, 1))
    everything = [row for some in rows for row in some]
    assert grid_queries.in_the_end(everything, KINDS[kind].key_columns) == KINDS[kind].model(left, right)


def write_rows(folder: Path, batch: int, keys: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{batch}.json").write_text("".join(json.dumps({"k": key, "v": 1}) + "\n" for key in keys))


def run_sums(
    spark: SparkSession, folder: Path, weight: int, failing_batch: int | None = None
) -> dict[int, dict[str, int]]:
    """Let the query take its input, with `weight` for each row; returns the sums that each batch put out."""
    batches: dict[int, dict[str, int]] = {}

    def take(batch: DataFrame, batch_id: int) -> None:
        batches[batch_id] = {row.k: row.total for row in batch.collect()}
        if batch_id == failing_batch:
            raise RuntimeError("the sink fails")

    rows = spark.readStream.schema("k string, v long").json(str(folder / "in"))
    weighted = rows.selectExpr("k", f"v * {weight} AS v")
    sums = weighted.groupBy("k").agg({"v": "sum"}).toDF("k", "total")
    query = (
        hf.sink(sums, mode="update")
        .foreach_batch(take)
        .start(checkpoint=str(folder / "checkpoint"), trigger=hf.available_now())
    )
    if failing_batch is None:
        query.awaitTermination()
    else:
        with pytest.raises(StreamingQueryException, match="the sink fails"):
            query.awaitTermination()
    return batches


@pytest.mark.parametrize("backend", REPEATED, indirect=True)
def test_a_batch_that_runs_again_with_another_result_replaces_its_state(
    unprepared: SparkSession, settings: Settings, backend: dict[str, str], tmp_path: Path
) -> None:
    """The state of a batch is committed, its sink fails, the code is fixed, and the batch runs again."""
    settings({**backend, PARTITIONS_KEY: "2"})
    keys = ["abcdefgh", "abcd", "abcdefgh"]
    write_rows(tmp_path / "in", 0, keys[0])
    assert run_sums(unprepared, tmp_path, 1) == {0: dict.fromkeys(keys[0], 1)}
    write_rows(tmp_path / "in", 1, keys[1])
    assert run_sums(unprepared, tmp_path, 1, failing_batch=1) == {1: dict.fromkeys(keys[1], 2)}
    expected = Counter(dict.fromkeys(keys[0], 1)) + Counter(dict.fromkeys(keys[1], 10))
    assert run_sums(unprepared, tmp_path, 10) == {1: {key: expected[key] for key in keys[1]}}
    write_rows(tmp_path / "in", 2, keys[2])
    expected.update(dict.fromkeys(keys[2], 10))
    assert run_sums(unprepared, tmp_path, 10) == {2: dict(expected)}
    assert list((tmp_path / "checkpoint").rglob("*.tmp")) == []


def test_a_checkpoint_follows_the_address_of_its_database(
    unprepared: SparkSession, settings: Settings, redis_server: RedisServer, tmp_path: Path
) -> None:
    databases = []
    for batch, host in enumerate(("127.0.0.1", "localhost")):
        settings({**hf.Redis(f"{host}:{redis_server.port}").spark_conf(), PARTITIONS_KEY: "2"})
        write_rows(tmp_path / "in", batch, "abcdefgh")
        assert run_sums(unprepared, tmp_path, 1) == {batch: dict.fromkeys("abcdefgh", batch + 1)}
        files = sorted((tmp_path / "checkpoint" / "state").rglob("external.json"))
        databases.append([json.loads(file.read_text())["database"] for file in files])
    assert databases == [[f"redis://{host}:{redis_server.port}/0"] * 2 for host in ("127.0.0.1", "localhost")]
    assert list((tmp_path / "checkpoint").rglob("*.tmp")) == []
