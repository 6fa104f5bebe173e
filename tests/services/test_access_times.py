"""The access times of state in a database, as its tasks measure them, and the alert on them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from grid_runs import PARTITIONS_KEY, PROVIDERS
from tcp_proxy import SlowProxy
from tikv_server import RUN

import holdfast as hf
from holdfast.config.alert_settings import Alerts
from holdfast.engine.queries.watch import committed_batch
from holdfast.observe.alerting import FIRING, evaluate
from holdfast.observe.batch_numbers import query_samples
from holdfast.observe.metrics import MetricSample, sample

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
        median, most, almost_all = values(samples, PERCENTILE)
        assert 0 < median <= most <= almost_all


def test_state_on_the_heap_reports_no_access_times(settings: Settings, run: Run) -> None:
    settings({**PROVIDERS["memory"], PARTITIONS_KEY: "2"})
    samples = run("abcd")
    assert values(samples, MEAN) == values(samples, PERCENTILE) == []
