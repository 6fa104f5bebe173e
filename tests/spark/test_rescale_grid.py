"""Any kind of query, any provider, another number of partitions in the middle: every answer is right.

The whole grid takes minutes; `HOLDFAST_GRID=all` runs it. Otherwise every kind of query meets every provider,
and the changes take turns.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import grid_queries
import pytest
from grid import WHOLE
from grid_queries import KINDS
from grid_runs import PARTITIONS_KEY, PROVIDERS, run

from holdfast import checkpoints, savepoints
from holdfast.engine.session.workers import ship_by_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("guards_wait_no_time")]
ship_by_value(grid_queries)

CHANGES = [(2, 2), (2, 4), (4, 2), (3, 5)]
PAIRS = [(kind, each) for each in PROVIDERS for kind in KINDS if each != "memory" or KINDS[kind].heap]
# Each kind with one provider or two.
GRID = [(*pair, CHANGES[index % len(CHANGES)]) for index, pair in enumerate(PAIRS) if index % 2 == 0]
if WHOLE:
    GRID = [(*pair, change) for pair in PAIRS for change in CHANGES]


def fingerprint(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize(("kind", "provider", "change"), GRID, ids=lambda each: str(each).replace(" ", ""))
def test_a_query_goes_on_in_other_partitions(
    spark: SparkSession,
    settings: Callable[[dict[str, str]], None],
    tmp_path: Path,
    kind: str,
    provider: str,
    change: tuple[int, int],
) -> None:
    before, after = change
    settings({**PROVIDERS[provider], PARTITIONS_KEY: str(before)})
    made = grid_queries.files(7, count=3, size=20)
    for number, sides in enumerate(made[:2]):
        grid_queries.write(tmp_path, number, sides)
    rows = run(spark, kind, tmp_path, tmp_path / "first")
    kept = fingerprint(tmp_path / "first")
    rescaled = savepoints.rescale(tmp_path / "first", tmp_path / "second", partitions=after, stopped=True)
    assert fingerprint(tmp_path / "first") == kept
    [operator] = checkpoints.read(tmp_path / "second").operators
    assert operator.partitions == after
    assert rescaled.rows > 0
    assert checkpoints.verify(tmp_path / "second").problems == ()
    # What it was made of is not needed any more.
    shutil.rmtree(tmp_path / "first")
    for number, sides in enumerate(made[2:], start=2):
        grid_queries.write(tmp_path, number, sides)
    rows += run(spark, kind, tmp_path, tmp_path / "second")
    left = [event for sides in made for event in sides[0]]
    right = [event for sides in made for event in sides[1]]
    assert grid_queries.in_the_end(rows, KINDS[kind].key_columns) == KINDS[kind].model(left, right)
    # No session may still be there that works in the source's directory; the source's lock lies beside it.
    assert {each.name for each in tmp_path.iterdir()} == {".first.holdfast.lock", "left", "right", "second"}
