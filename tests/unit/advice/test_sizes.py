"""Cores and memory as settings tell of them."""

from __future__ import annotations

import pytest

from holdfast.advice.sizes import cores_of, rocksdb_budget_mb, room_beside_heap_mb, too_many
from holdfast.config.spark_defaults import BOUNDED_MEMORY_KEY, PROVIDER_KEY, ROCKSDB_PROVIDER

ROCKS = {PROVIDER_KEY: ROCKSDB_PROVIDER, BOUNDED_MEMORY_KEY: "true"}
MOST = "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB"


@pytest.mark.parametrize(
    ("master", "settings", "cores"),
    [
        ("local", {}, 1),
        ("local[4]", {}, 4),
        ("local[4, 2]", {}, 4),
        (None, {"spark.master": "local[3]"}, 3),
        ("spark://m:7077", {"spark.executor.instances": "5", "spark.executor.cores": "2"}, 10),
        ("spark://m:7077", {"spark.executor.cores": "2"}, None),
        (None, {"spark.executor.instances": "many", "spark.executor.cores": "2"}, None),
        (None, {}, None),
    ],
)
def test_cores(master: str | None, settings: dict[str, str], cores: int | None) -> None:
    assert cores_of(master, settings.get) == cores


@pytest.mark.parametrize(
    ("partitions", "cores", "many"),
    [(200, 4, True), (200, 25, False), (31, 1, False), (32, 4, False), (33, 4, True)],
)
def test_partitions(partitions: int, cores: int, many: bool) -> None:
    assert too_many(partitions, cores) is many


@pytest.mark.parametrize(
    ("settings", "budget"),
    [(ROCKS, 500), ({**ROCKS, MOST: "2000"}, 2000), ({**ROCKS, MOST: "much"}, None), ({MOST: "2000"}, None)],
)
def test_the_budget_of_rocksdb(settings: dict[str, str], budget: int | None) -> None:
    assert rocksdb_budget_mb(settings.get) == budget


@pytest.mark.parametrize(
    ("master", "settings", "room"),
    [
        (None, {"spark.executor.memoryOverhead": "3g"}, 3072),
        (None, {"spark.executor.memoryOverhead": "700"}, 700),
        (None, {"spark.executor.memory": "8g"}, 819),
        (None, {"spark.executor.memory": "2g"}, 384),
        (None, {"spark.executor.memory": "8g", "spark.executor.memoryOverheadFactor": "0.5"}, None),
        ("k8s://cluster", {"spark.executor.memory": "8g"}, None),
        ("local[2]", {"spark.executor.memoryOverhead": "3g"}, None),
        (None, {}, None),
    ],
)
def test_the_room_beside_the_heap(master: str | None, settings: dict[str, str], room: int | None) -> None:
    assert room_beside_heap_mb(master, settings.get) == room
