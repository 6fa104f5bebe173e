"""What settings come to on a cluster, against cases that were worked out by hand."""

from __future__ import annotations

import pytest

from holdfast.config.cluster_settings import (
    Manager,
    asked_cores,
    container_defaults,
    executor_memory,
    manager_of,
    setting_cautions,
    worker_caution,
)
from holdfast.config.spark_defaults import (
    BOUNDED_MEMORY_KEY,
    PROVIDER_KEY,
    ROCKSDB_PROVIDER,
    state_partitions,
)
from holdfast.errors import Invalid

MIB = 1 << 20
STATE = {
    PROVIDER_KEY: ROCKSDB_PROVIDER,
    BOUNDED_MEMORY_KEY: "true",
    "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": "512",
}
YARN = {**STATE, "spark.executor.instances": "6", "spark.executor.cores": "4"}


@pytest.mark.parametrize(
    ("master", "manager"),
    [
        ("local", Manager.LOCAL),
        ("local[*]", Manager.LOCAL),
        ("local[4,2]", Manager.LOCAL),
        ("local-cluster[2,1,1024]", Manager.LOCAL_CLUSTER),
        ("spark://a:7077,b:7077", Manager.STANDALONE),
        ("yarn", Manager.YARN),
        ("k8s://https://k:6443", Manager.KUBERNETES),
        ("other://x", Manager.OTHER),
    ],
)
def test_a_masters_address_names_its_manager(master: str, manager: Manager) -> None:
    assert manager_of(master) is manager


@pytest.mark.parametrize(
    ("master", "conf", "slots"),
    [
        ("local-cluster[3, 2, 1024]", {}, 6),
        ("yarn", {}, 2),
        ("yarn", YARN, 24),
        ("yarn", {**YARN, "spark.task.cpus": "2"}, 12),
        ("k8s://x", {**YARN, "spark.executor.instances": "5"}, 20),
        ("yarn", {**YARN, "spark.dynamicAllocation.enabled": "true"}, None),
        (
            "yarn",
            {**YARN, "spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.maxExecutors": "3"},
            12,
        ),
        ("spark://a:7077", YARN, None),
    ],
)
def test_the_cores_that_settings_ask_for(master: str, conf: dict[str, str], slots: int | None) -> None:
    assert asked_cores(master, conf).slots == slots


@pytest.mark.parametrize(("slots", "partitions"), [(1, 2), (2, 2), (24, 24), (128, 128), (400, 128)])
def test_state_has_a_partition_a_task_and_no_more_than_key_groups(slots: int, partitions: int) -> None:
    assert state_partitions(slots) == partitions


def test_the_memory_of_an_executor_by_hand() -> None:
    # 4 GiB of heap, of which Spark adds a tenth; four workers of 160 + 256 MiB; RocksDB as bounded.
    memory = executor_memory("yarn", {**YARN, "spark.executor.memory": "4g"}, slots=4)
    assert memory.heap_bytes == 4096 * MIB
    assert memory.jvm_bytes == 4096 * MIB // 10
    assert memory.state_bytes == 512 * MIB
    assert memory.python_bytes == 4 * 416 * MIB
    assert memory.total_bytes == sum((4096 * MIB, 4096 * MIB // 10, 512 * MIB, 1664 * MIB))
    assert memory.given_bytes == 4096 * MIB // 10


def test_spark_reserves_at_least_384_mebibytes_and_more_on_kubernetes() -> None:
    assert executor_memory("yarn", YARN, slots=1).given_bytes == 384 * MIB
    assert executor_memory("k8s://x", {"spark.executor.memory": "4g"}, slots=1).given_bytes == 1717986918
    assert executor_memory("spark://x", YARN, slots=1).given_bytes is None


def test_unbounded_stores_are_counted_one_by_one() -> None:
    memory = executor_memory("yarn", {PROVIDER_KEY: ROCKSDB_PROVIDER}, slots=2, partitions=10)
    assert (memory.state_bounded, memory.state_bytes) == (False, 10 * 136 * MIB)
    assert "no limit" in setting_cautions("yarn", {PROVIDER_KEY: ROCKSDB_PROVIDER})[0]


def test_an_overhead_is_set_for_containers_where_nobody_has() -> None:
    # 384 of the JVM, 512 of RocksDB, four workers of 416.
    wanted = {"spark.executor.memoryOverhead": f"{384 + 512 + 4 * 416}m"}
    assert container_defaults("yarn", YARN) == wanted
    assert setting_cautions("yarn", {**YARN, **wanted}) == ()
    assert container_defaults("spark://x", YARN) == {}
    assert container_defaults("yarn", {**YARN, "spark.executor.memoryOverhead": "1g"}) == {}
    assert container_defaults("yarn", {**YARN, "spark.executor.pyspark.memory": "2g"}) == {
        "spark.executor.memoryOverhead": f"{384 + 512}m"
    }


def test_too_small_a_container_is_told_with_figures() -> None:
    (said,) = setting_cautions("yarn", {**YARN, "spark.executor.memoryOverhead": "1g"})
    assert "1 GiB outside the heap" in said
    assert "spark.executor.memoryOverhead=2560m" in said
    assert "2.5 GiB" in said


def test_a_limit_of_pyspark_that_is_too_small_is_told() -> None:
    conf = {**YARN, "spark.executor.pyspark.memory": "1g", "spark.executor.memoryOverhead": "4g"}
    (said,) = setting_cautions("yarn", conf)
    assert "4 Python workers 256 MiB" in said
    assert "1664m" in said


def test_executors_that_come_and_go_are_told() -> None:
    said = setting_cautions("spark://x", {**STATE, "spark.dynamicAllocation.enabled": "true"})
    assert "spark.dynamicAllocation.enabled=false" in said[0]
    assert setting_cautions("local[2]", {"spark.dynamicAllocation.enabled": "true"}) == ()


def test_a_worker_that_an_executor_may_outgrow_is_told() -> None:
    memory = executor_memory("spark://x", {**STATE, "spark.executor.memory": "1g"}, slots=1)
    assert worker_caution(memory, 4096 * MIB, "w") is None
    assert "the worker on w offers 2 GiB" in str(worker_caution(memory, 2048 * MIB, "w"))


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("spark.executor.cores", "many"),
        ("spark.executor.memory", "1 gigabyte"),
        ("spark.executor.cores", "0"),
    ],
)
def test_a_setting_that_cannot_be_read_is_named(key: str, text: str) -> None:
    with pytest.raises(Invalid) as refused:
        setting_cautions("yarn", {**YARN, key: text})
    assert refused.value.where == key
