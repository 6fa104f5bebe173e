"""Scratch."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import grid_queries
import pytest
from grid_queries import KINDS
from test_rescale_grid import CHANGELOG_KEY, PARTITIONS_KEY, PROVIDERS, run

from holdfast import checkpoints
from holdfast.savepoints.rewriting import StateShape, rewrite
from holdfast.storage.local import LocalStorage
from holdfast.config.defaults import FORMAT_KEY, PROVIDER_KEY
from holdfast.engine.workers import ship_by_value

pytestmark = pytest.mark.spark
ship_by_value(grid_queries)
GRID = [
    (k, a, b, (2, 3))
    for a in PROVIDERS
    for b in PROVIDERS
    for k in KINDS
    if KINDS[k].heap or "memory" not in (a, b)
]
if os.environ.get("K"):
    GRID = [g for g in GRID if "-".join(map(str, g[:3])).startswith(os.environ["K"])]


@pytest.mark.parametrize(
    ("kind", "provider", "other", "change"), GRID, ids=lambda each: str(each).replace(" ", "")
)
def test_moves(spark, settings, tmp_path, kind, provider, other, change):
    before, after = change
    settings(
        {
            "spark.sql.streaming.stateStore.rowChecksum.readVerificationRatio": "1",
            **PROVIDERS[provider],
            PARTITIONS_KEY: str(before),
        }
    )
    made = grid_queries.files(7, count=3, size=20)
    for number, sides in enumerate(made[:2]):
        grid_queries.write(tmp_path, number, sides)
    rows = run(spark, kind, tmp_path, tmp_path / "first")
    fmt = int(PROVIDERS[other][FORMAT_KEY])
    if "schema paths are absolute":
        (tmp_path / "first").rename(tmp_path / "gone")
        shutil.copytree(tmp_path / "gone", tmp_path / "first")
    rewrite(
        LocalStorage(tmp_path / "first"), StateShape(other != "memory", after, fmt), tmp_path / "w", lambda: 5
    )
    shutil.rmtree(tmp_path / "gone")
    assert checkpoints.verify(tmp_path / "first").problems == ()
    # forget: old versions must not be needed
    settings({**PROVIDERS[other], PARTITIONS_KEY: "6"})
    for number, sides in enumerate(made[2:], start=2):
        grid_queries.write(tmp_path, number, sides)
    rows += run(spark, kind, tmp_path, tmp_path / "first")
    left = [event for sides in made for event in sides[0]]
    right = [event for sides in made for event in sides[1]]
    assert grid_queries.in_the_end(rows, KINDS[kind].key_columns) == KINDS[kind].model(left, right)
