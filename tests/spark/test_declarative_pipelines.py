"""A pipeline run by `spark-pipelines`, with an installed wheel: all flows, a full refresh, a rescale."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from grid import WHOLE
from installed_wheel import build_wheel, install, readers_environment
from loopback import free_ports
from pipeline_runs import TABLES, Pipeline, orders_of

pytestmark = pytest.mark.skipif(not WHOLE, reason="runs a pipeline three times; HOLDFAST_GRID=all runs it")


ORDERS = [order for minute in (1, 2, 3, 4, 5) for order in orders_of(minute)]


@pytest.fixture
def environ(tmp_path: Path) -> Mapping[str, str]:
    (tmp_path / "dist").mkdir()
    programs = install(build_wheel(tmp_path / "dist"), tmp_path / "installed")
    [port] = free_ports(1)
    found = dict(readers_environment(programs, port))
    found.pop("PYSPARK_SUBMIT_ARGS")  # for a session in the process; a pipeline has a file of settings
    return found | {"PYSPARK_PYTHON": str(programs / "python")}


def test_all_flows_a_full_refresh_and_a_rescale(tmp_path: Path, environ: Mapping[str, str]) -> None:
    pipeline = Pipeline(tmp_path / "cafe", environ)

    def holdfast(*words: str) -> dict[str, Any]:
        done = subprocess.run(
            ["holdfast", *words, "--json"],
            cwd=pipeline.folder,
            env=environ,
            check=False,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return dict(json.loads(done.stdout))

    for minute in (1, 2, 3):
        pipeline.add(minute)
    pipeline.run()
    checked = holdfast("verify", "storage")["flows"]
    assert [(flow["flow"], flow["version"], flow["result"]["ok"]) for flow in checked] == [
        ("copies", 0, True),
        ("first_orders", 0, True),
        ("by_minute", 0, True),
    ]
    refreshes = {one["flow"]: one for one in holdfast("doctor", "storage")["full_refresh"]}
    # Each window is in the table or in the state.
    windows = {(minute, drink) for minute in (1, 2, 3) for drink in ("coffee", "tea")}
    still_open = windows - {*emitted(pipeline)}
    assert refreshes["by_minute"]["rows"] == len(still_open)
    assert refreshes["first_orders"]["rows"] == len({order["id"] for order in ORDERS[:60]})
    assert refreshes["first_orders"]["sources"][0]["offset"] == {"logOffset": 2}
    assert refreshes["copies"]["rows"] == 0
    saved = holdfast("savepoint", "take", "storage", "saved", "--label", "before")["flows"]
    assert [flow["result"]["content"] for flow in saved] == ["recorded"] * 3

    # The next version of a flow is what its next run continues with.
    first = "first_orders"
    old, new = (str(pipeline.flow(first, first, version)) for version in (0, 1))
    moved = holdfast("rescale", old, new, "--partitions", "3", "--confirm-stopped")
    assert moved["rows"] == refreshes[first]["rows"]
    pipeline.add(4)
    pipeline.run("--full-refresh", "totals", "--refresh", "first_orders,copies")

    shown = {flow["flow"]: flow for flow in holdfast("show", "storage")["flows"]}
    assert (shown[first]["version"], shown[first]["older_versions"]) == (1, [0])
    assert shown[first]["result"]["operators"][0]["partitions"] == 3
    assert (shown["by_minute"]["version"], shown["by_minute"]["older_versions"]) == (1, [0])
    assert all(flow["result"]["ok"] for flow in holdfast("verify", "storage")["flows"])
    # Nothing was lost and nothing came twice: each id once, also of minutes from before the rescale.
    assert Counter(row["id"] for row in pipeline.rows(first)) == Counter(
        {order["id"] for order in ORDERS[:80]}
    )
    assert Counter(row["id"] for row in pipeline.rows("copies")) == Counter(
        {order["id"] for order in ORDERS[:80]}
    )

    # The lost checkpoint of a flow is restored at its newest batch, as the version after it.
    holdfast("savepoint", "take", "storage", "saved", "--label", "after")
    shutil.rmtree(pipeline.flow("totals", "by_minute", 1))
    lost = f"saved/{TABLES}.totals/by_minute@after"
    holdfast("restore", lost, str(pipeline.flow("totals", "by_minute", 2)))
    pipeline.add(5)
    pipeline.run()
    flows = {flow["flow"]: flow for flow in holdfast("doctor", "storage")["full_refresh"]}
    assert (flows["by_minute"]["version"], flows["by_minute"]["older_versions"]) == (2, [0])
    # Since the refresh each window came once, or is in the state.
    closed = emitted(pipeline)
    assert set(closed.values()) == {1}
    assert flows["by_minute"]["rows"] == 5 * 2 - len(closed)


def emitted(pipeline: Pipeline) -> Counter[tuple[int, str]]:
    """The windows in the table, which have the counts of the model."""
    counts = Counter((order["at"][14:16], order["drink"]) for order in ORDERS)
    windows: Counter[tuple[int, str]] = Counter()
    for row in pipeline.rows("totals"):
        minute, drink = row["window"]["start"].minute, row["drink"]
        assert row["count"] == counts[f"{minute:02}", drink]
        windows[minute, drink] += 1
    return windows
