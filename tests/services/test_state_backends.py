"""One contract for every backend: Spark's operators, restarts, batches that run again, kills."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import grid_queries
import pytest
from grid_queries import KINDS
from grid_runs import PARTITIONS_KEY, PROVIDERS, run
from tikv_server import RUN

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.services]

BACKENDS = ["memory", "rocksdb", "redis", "cassandra", "tikv"]
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
