"""The access times of state in a database, as its tasks measure them, and the alert on them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from grid_runs import PARTITIONS_KEY, PROVIDERS
from tcp_proxy import SlowProxy
from tikv_server import RUN

import holdfast as hf
from holdfast.config.alert_settings import Alerts
from holdfast.engine.queries.watch import committed_batch
from holdfast.engine.session.workers import ship_by_value
from holdfast.observe.alerting import FIRING, evaluate
from holdfast.observe.batch_numbers import query_samples
from holdfast.observe.metrics import MetricSample, sample

ship_by_value(sys.modules[__name__])

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.services]

MINUTE = 60_000
MEAN, PERCENTILE = "holdfast_state_access_seconds", "holdfast_state_access_quantile_seconds"
Settings = Callable[[dict[str, str]], None]
Run = Callable[[str], list[MetricSample]]


@pytest.fixture
def run(unprepared: SparkSession, tmp_path: Path) -> Run:
    """Let a query count the letters of one more batch; returns the metrics of that batch."""
    folder = tmp_path / "in"
    folder.mkdir()

    def run_batch(keys: str) -> list[MetricSample]:
        file = folder / f"{len(list(folder.iterdir()))}.json"
        file.write_text("".join(json.dumps({"k": key}) + "\n" for key in keys))
        counts = unprepared.readStream.schema("k string").json(str(folder)).groupBy("k").count()

        def take(batch: DataFrame, _: int) -> None:
            batch.collect()

        query = (
            counts.writeStream.outputMode("update")
            .foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        [progress] = query.recentProgress
        batch = committed_batch("counts", json.loads(progress.json), 0)
        assert batch is not None
        assert [operator.updated for operator in batch.operators] == [len(set(keys))]
        return query_samples("shop", [batch], 0)

    return run_batch


def values(samples: Iterable[MetricSample], metric: str) -> list[float]:
    return [each.value for each in samples if each.metric == metric]


def is_firing(samples: list[MetricSample]) -> bool:
    """True if the alert fires by its default threshold, once the state has been this slow for a minute."""
    threshold = sample(
        "holdfast_alert_threshold", Alerts().thresholds["access_latency"], "shop", "access_latency"
    )
    alerts, _ = evaluate([*samples, threshold], {}, 0)
    alerts, _ = evaluate([*samples, threshold], alerts, MINUTE)
    return [alert.phase for alert in alerts.values()] == [FIRING]


@pytest.mark.parametrize("kind", ["redis", "cassandra"])
def test_the_alert_fires_while_a_database_answers_late(
    request: pytest.FixtureRequest, settings: Settings, run: Run, kind: str
) -> None:
    with SlowProxy(request.getfixturevalue(f"{kind}_server").port) as proxy:
        backend = hf.Redis(proxy.address) if kind == "redis" else hf.Cassandra(proxy.address, replication=1)
        settings({**backend.spark_conf(), PARTITIONS_KEY: "2"})
        assert min(values(run("abcdefgh"), MEAN)) > 0
        # Each request takes at least 0.12 s, to the server and back. The threshold is 0.1 s.
        proxy.delay_s = 0.06
        slow = run("abcd")
        assert min(values(slow, MEAN)) >= 0.12
        # No request of the batch before is counted.
        assert min(values(slow, PERCENTILE)) > 0.1
        assert is_firing(slow)


@pytest.mark.parametrize("kind", ["redis", "cassandra", "tikv"])
def test_each_batch_reports_its_own_requests(
    request: pytest.FixtureRequest, settings: Settings, run: Run, kind: str
) -> None:
    if kind == "tikv":
        conf = hf.TiKV(request.getfixturevalue("tikv_address"), prefix=RUN).spark_conf()
    else:
        address = request.getfixturevalue(f"{kind}_server").address
        conf = (hf.Redis(address) if kind == "redis" else hf.Cassandra(address, replication=1)).spark_conf()
    settings({**conf, PARTITIONS_KEY: "2"})
    for keys in ("abcdefgh", "abcd"):
        samples = run(keys)
        assert min(values(samples, MEAN)) > 0
        median, most, almost_all, longest = values(samples, PERCENTILE)
        assert 0 < median <= most <= almost_all <= longest


@pytest.mark.parametrize("backend", ["memory", "rocksdb2"])
def test_in_files_the_means_of_batches_have_quantiles_and_single_accesses_none(
    settings: Settings, run: Run, backend: str
) -> None:
    settings({**PROVIDERS[backend], PARTITIONS_KEY: "2"})
    samples = run("abcd")
    assert values(samples, PERCENTILE) == []
    (update,) = values(samples, "holdfast_state_update_seconds")
    # Spark measures no access to the heap, so there the time of an update with its processing counts.
    (mean,) = values(samples, MEAN) if backend == "rocksdb2" else [update]
    assert update > 0
    # RocksDB's times are in milliseconds, which some gets do not reach together.
    assert mean >= 0
    assert values(samples, "holdfast_state_access_batches_seconds") == [mean] * 4


class Counted(hf.Keyed):
    seen = hf.value("long", default=0)

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterable[Any]:
        state.seen += 1
        yield {"k": event.k}


def test_reads_and_writes_of_keyed_state_are_measured_one_by_one(
    request: pytest.FixtureRequest, spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    """Four of a batch are slow: two tasks read and write blobs behind a proxy that answers late."""
    settings({PARTITIONS_KEY: "2"})
    folder = tmp_path / "in"
    folder.mkdir()
    with SlowProxy(request.getfixturevalue("redis_server").port) as proxy:
        events = spark.readStream.schema("k long").json(str(folder))
        keyed = hf.keyed(events, by="k", key_groups=2, placement=parity)
        frame = keyed.process(
            Counted(), output="k long", name="counted", blobs=hf.Redis(proxy.address), blobs_from="1b"
        )

        def run_batch() -> list[MetricSample]:
            """Let the query count one event of each of two keys, which are in two partitions."""
            file = folder / f"{len(list(folder.iterdir()))}.json"
            file.write_text('{"k": 0}\n{"k": 1}\n')
            sink = hf.sink(frame, mode="update").foreach_batch(lambda batch, _: batch.collect())
            query = sink.start(checkpoint=str(tmp_path / "checkpoint"), trigger=hf.available_now())
            query.awaitTermination()
            batch = committed_batch("q", json.loads(query.recentProgress[-1].json), 0)
            assert batch is not None
            assert batch.operators[0].keyed is not None
            assert sum(batch.operators[0].keyed.accesses) == 4
            return query_samples("shop", [batch], 0)

        run_batch()
        # Each request takes at least 0.12 s, to the server and back.
        proxy.delay_s = 0.06
        assert values(run_batch(), PERCENTILE)[-1] > 0.12


def parity(k: int) -> int:
    return k % 2
