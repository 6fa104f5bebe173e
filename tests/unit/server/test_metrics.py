from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from served import NOW_MS, SHOP, Served, batch

from holdfast.model import JobState, PartitionPosition, SourceProgress, TaskTimes
from holdfast.observe.alerting import AlertStore
from holdfast.observe.metrics import METRICS, MetricSample
from holdfast.server.server_settings import ServerSettings

PAGE = {"accept": "text/html"}
ROWS = next(each for each in METRICS if each.name == "holdfast_batches_total")


@pytest.fixture
def shop(tmp_path: Path) -> Served:
    served = Served(tmp_path)
    served.job()
    return served


def get(served: Served, path: str) -> Any:
    answer = served.client().get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.slow
def test_a_home_where_nothing_was_measured(shop: Served) -> None:
    assert get(shop, "/api/v1/metrics")["samples"] == []
    assert get(shop, "/api/v1/alerts") == {"alerts": []}
    assert get(shop, "/api/v1/alerts/events?job=shop") == {"events": []}
    assert get(shop, "/api/v1/jobs/shop/recovery") == {"recoveries": [], "prediction": None}
    assert shop.client().get("/metrics").status_code == 200


def test_what_a_job_has_and_needs(shop: Served) -> None:
    tasks = TaskTimes(jobs_ms=700, run_ms=1_300, longest_ms=100)
    operator = replace(batch(3).operators[0], partitions=200)
    sized = replace(batch(3, took_ms=900), operators=(operator,), interval_ms=1_000, cores=2, tasks=tasks)
    shop.registry.add_batch("shop", 2, sized)
    with shop.supervised():
        (found,) = get(shop, "/api/v1/jobs/shop/sizing")["queries"]
    assert (found["query"], found["state"], found["sureness"]) == ("visits", "under_provisioned", "low")
    # The driver's 200 ms and the longest tasks' 100.
    assert (found["batches"], found["batch_ms"], found["critical_ms"]) == (4, 900, 300)
    assert (found["partitions"], found["recommended_partitions"]) == (200, 1)
    assert (found["cores"], found["recommended_cores"]) == (2, 1)
    (growth,) = found["growth"]
    assert (growth["operator"], growth["growing"]) == ("0 aggregate", "too_little_seen")
    # The default of alerts.state_size, for the only operator.
    assert growth["limit_bytes"] == 10 * 1024**3


def test_a_job_that_has_ended_is_judged_as_it_was_then(shop: Served) -> None:
    shop.job("till", state=JobState.FINISHED)
    (found,) = shop.client(now_ms=NOW_MS + 86_400_000).get("/api/v1/jobs/till/sizing").json()["queries"]
    assert found["state"] == "right"
    with shop.supervised():
        answer = shop.client(now_ms=NOW_MS + 86_400_000).get("/api/v1/jobs/shop/sizing").json()
    assert answer["queries"][0]["state"] == "no_new_batches"


def test_a_day_without_a_limit_is_no_day(shop: Served) -> None:
    threshold = MetricSample("holdfast_alert_threshold", ("shop", "skew"), 4.0)
    AlertStore(shop.home.path).save("shop", NOW_MS, samples=(threshold,), totals={}, standing={})
    with shop.supervised():
        (found,) = get(shop, "/api/v1/jobs/shop/sizing")["queries"]
    assert (found["state"], found["allowed_ms"]) == ("unknown", None)
    assert found["growth"][0]["limit_bytes"] is None


def test_numbers_for_prometheus_and_as_json(shop: Served) -> None:
    labels = tuple("shop" if "job" in each else "visits" for each in ROWS.labels)
    sample = MetricSample(ROWS.name, labels, 3.0)
    AlertStore(shop.home.path).save("shop", NOW_MS, samples=(sample,), totals={}, standing={})
    answer = shop.client().get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = {
        each.name: (sorted(each.labels.values()), each.value)
        for family in text_string_to_metric_families(answer.text)
        for each in family.samples
    }
    assert found["holdfast_batches_total"] == (sorted(labels), 3.0)
    listed = get(shop, f"/api/v1/metrics?job={SHOP}")
    assert [each["value"] for each in listed["samples"]] == [3.0]
    assert listed["metrics"][0]["name"] == ROWS.name


def test_numbers_need_the_token_too(tmp_path: Path) -> None:
    served = Served(tmp_path, ServerSettings(token="a-token-that-is-long-enough"))
    assert served.client().get("/metrics").status_code == 401


def test_how_far_a_job_is_behind(shop: Served) -> None:
    """Of ten records that came between two batches, the sixth is the first that is not read."""
    for number, latest in ((3, 10), (4, 20)):
        source = SourceProgress(1, "KafkaV2", 0, (PartitionPosition("orders", 0, 15, latest),))
        shop.registry.add_batch("shop", 2, replace(batch(number), sources=(source,)))
    planned = [each.committed_ms - each.duration_ms for each in (batch(3), batch(4))]
    with shop.supervised():
        (found,) = get(shop, "/api/v1/jobs/shop/lag")["partitions"]
        page = shop.client().get("/ui/jobs/shop", headers=PAGE).text
    assert (found["query"], found["source"], found["topic"], found["partition"]) == ("visits", 1, "orders", 0)
    assert (found["next"], found["latest"], found["records"], found["at_least"]) == (15, 20, 5, False)
    assert found["behind_ms"] == NOW_MS - (planned[0] + planned[1]) // 2
    assert "Lag behind sources" in page


@pytest.mark.slow
def test_a_job_whose_sources_do_not_tell_is_not_behind(shop: Served) -> None:
    with shop.supervised():
        assert get(shop, "/api/v1/jobs/shop/lag") == {"partitions": []}
        assert "Lag behind sources" not in shop.client().get("/ui/jobs/shop", headers=PAGE).text
