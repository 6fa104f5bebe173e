from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from served import NOW_MS, SHOP, Served

from holdfast.observe.alert_store import AlertStore
from holdfast.observe.metrics import METRICS, Sample
from holdfast.server.server_settings import ServerSettings

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


def test_a_home_where_nothing_was_measured(shop: Served) -> None:
    assert get(shop, "/api/v1/metrics")["samples"] == []
    assert get(shop, "/api/v1/alerts") == {"alerts": []}
    assert get(shop, "/api/v1/alerts/events?job=shop") == {"events": []}
    assert get(shop, "/api/v1/jobs/shop/recovery") == {"recoveries": [], "prediction": None}
    assert shop.client().get("/metrics").status_code == 200


def test_numbers_for_prometheus_and_as_json(shop: Served) -> None:
    labels = tuple("shop" if "job" in each else "visits" for each in ROWS.labels)
    sample = Sample(ROWS.name, labels, 3.0)
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
