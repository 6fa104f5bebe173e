"""Keyed operators by their names and in keys: REST, the dashboard and `holdfast status` say the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from cli_runner import cli_in
from served import Served, batch

from holdfast.model import KeyedProgress, KeyedState, OperatorProgress


def keyed(name: str, keys: int | None) -> OperatorProgress:
    states = (KeyedState("total", keys, None if keys is None else 800, 2),)
    counted = KeyedProgress(
        name,
        keys=keys,
        timers=None if keys is None else 3,
        size_bytes=4_000,
        uncounted_groups=0 if keys else 5,
        touched=9,
        written=8,
        added=1,
        removed=0,
        expired=2,
        events=50,
        late=0,
        failed=0,
        read_us=90,
        write_us=80,
        states=states,
    )
    return OperatorProgress(name, keys, 8, 0, 0, 10_000, 7, 2, {}, counted, "transformWithStateInPySparkExec")


@pytest.fixture
def shop(tmp_path: Path) -> Served:
    served = Served(tmp_path)
    served.job(batches=0)
    for number in range(2):
        operators = (keyed("visits", 1_234), keyed("baskets", None))
        served.registry.add_batch("shop", 2, replace(batch(number), operators=operators))
    return served


def test_rest_has_names_and_keys(shop: Served) -> None:
    found = shop.client().get("/api/v1/jobs/shop").json()["batches"][-1]["operators"]
    assert [(each["name"], each["rows"], each["keyed"]["timers"]) for each in found] == [
        ("visits", 1_234, 3),
        ("baskets", None, None),
    ]
    assert found[0]["keyed"]["states"] == [
        {"name": "total", "entries": 1_234, "size_bytes": 800, "expired": 2}
    ]
    assert found[0]["spark_name"] == "transformWithStateInPySparkExec"


def test_flinks_paths_have_the_names(shop: Served) -> None:
    client = shop.client()
    (job,) = client.get("/jobs").json()["jobs"]
    (vertex,) = client.get(f"/jobs/{job['id']}").json()["vertices"]
    assert vertex["name"] == "visits -> visits -> baskets -> Sink"


@pytest.mark.slow
def test_the_page_has_names_keys_and_unknown_ones(shop: Served) -> None:
    page = shop.client().get("/ui/jobs/shop", headers={"accept": "text/html"})
    assert page.status_code == 200, page.text
    for text in ("visits", "baskets", "unknown", "1,234", "total"):
        assert text in page.text
    assert "transformWithState" not in page.text


def test_status_has_names_keys_and_unknown_ones(shop: Served, tmp_path: Path) -> None:
    holdfast = cli_in(tmp_path, shop.home.path)
    text = holdfast("status", "shop").stdout
    rows = [line.split() for line in text.splitlines()]
    assert ["visits", "visits", "(keys)", "1,234", "3", "4", "4,000"] in rows
    assert ["visits", "visits", "total", "1,234", "–", "4", "800"] in rows
    assert ["visits", "baskets", "(keys)", "unknown", "unknown", "4", "4,000"] in rows
    plain = json.loads(holdfast("status", "shop", "--json").stdout)
    assert plain["batches"][-1]["operators"][0]["keyed"]["keys"] == 1_234
