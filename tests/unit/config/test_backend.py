from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from holdfast.config.backend import Memory, RocksDB
from holdfast.config.checkpoint_settings import Checkpoint
from holdfast.config.setting_report import SettingOutcome
from holdfast.config.spark_defaults import DEFAULTS, Default, machine_defaults
from holdfast.errors import Invalid

SS = "spark.sql.streaming.stateStore"
STATE = "org.apache.spark.sql.execution.streaming.state"


def test_the_spark_settings_of_the_default() -> None:
    assert RocksDB().spark_conf() == {
        f"{SS}.providerClass": f"{STATE}.RocksDBStateStoreProvider",
        f"{SS}.checkpointFormatVersion": "2",
        f"{SS}.rowChecksum.enabled": "true",
        f"{SS}.rocksdb.boundedMemoryUsage": "true",
        f"{SS}.rocksdb.maxMemoryUsageMB": "512",
        f"{SS}.rocksdb.compression": "lz4",
        f"{SS}.rocksdb.trackTotalNumberOfRows": "true",
    }


def test_the_heap_store_goes_back_to_the_format_it_can_write() -> None:
    assert Memory().spark_conf() == {
        f"{SS}.providerClass": f"{STATE}.HDFSBackedStateStoreProvider",
        f"{SS}.checkpointFormatVersion": "1",
    }
    assert Memory().knobs() == ()


def test_unbounded_memory_gives_each_store_its_own_cache() -> None:
    conf = RocksDB(memory="unbounded", block_cache="64m", write_buffer="32 MB").spark_conf()
    assert conf[f"{SS}.rocksdb.boundedMemoryUsage"] == "false"
    assert f"{SS}.rocksdb.maxMemoryUsageMB" not in conf
    assert conf[f"{SS}.rocksdb.blockCacheSizeMB"] == "64"
    assert conf[f"{SS}.rocksdb.writeBufferSizeMB"] == "32"


def test_a_block_cache_beside_a_budget_is_explained_and_not_set() -> None:
    backend = RocksDB(block_cache="64m")
    assert f"{SS}.rocksdb.blockCacheSizeMB" not in backend.spark_conf()
    found = next(knob for knob in backend.knobs() if knob.name == "block_cache")
    assert found.outcome is SettingOutcome.NO_USE
    assert "unbounded" in found.why


def test_the_profile_gives_way_to_what_is_named() -> None:
    small = RocksDB(profile="low-memory")
    assert small.memory_bytes == 128 << 20
    assert small.spark_conf()[f"{SS}.rocksdb.writeBufferSizeMB"] == "8"
    named = RocksDB(profile="low-memory", memory="1g", write_buffer="16m")
    assert named.memory_bytes == 1 << 30
    assert named.spark_conf()[f"{SS}.rocksdb.writeBufferSizeMB"] == "16"
    assert RocksDB(profile="spinning-disk").spark_conf()[f"{SS}.rocksdb.blockSizeKB"] == "32"


def test_a_compression_that_the_verbs_could_not_read_is_refused() -> None:
    with pytest.raises(Invalid, match=r"'zlib', which Holdfast cannot read, .* \"zstd\""):
        RocksDB(compression="zlib")  # type: ignore[arg-type]


def test_local_dir_is_sparks_scratch_directory() -> None:
    assert RocksDB(local_dir=Path("/ssd")).spark_conf()["spark.local.dir"] == "/ssd"
    assert RocksDB(local_dir="/a,/b").local_dir == "/a,/b"


@pytest.mark.parametrize(
    "backend",
    [
        RocksDB(),
        RocksDB(memory="unbounded", profile="spinning-disk", local_dir="/ssd"),
        RocksDB(block_cache="1m", write_buffer="1m", profile="low-memory"),
    ],
)
def test_every_field_is_explained(backend: RocksDB) -> None:
    knobs = backend.knobs()
    assert [knob.name for knob in knobs] == [field.name for field in dataclasses.fields(RocksDB)]
    conf = backend.spark_conf()
    for knob in knobs:
        assert knob.value
        assert knob.why.endswith(".")
        for key, value in conf.items():
            if f"{key} = " in knob.becomes:
                assert f"{key} = {value}" in knob.becomes
    assert dataclasses.replace(backend) == backend


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("memory", "1k"), ("memory", "1536k"), ("memory", 0), ("memory", True), ("memory", "9000 tb"),
        ("memory", "plenty"), ("format_version", 3), ("format_version", "2"), ("row_checksum", "yes"),
        ("compression", "LZ4"), ("compression", "gzip"), ("block_cache", "-1m"), ("write_buffer", "1"),
        ("profile", "fast"), ("track_rows", 0), ("local_dir", "rel"), ("local_dir", "/a,b"),
        ("local_dir", ""), ("local_dir", 3),
    ],
)  # fmt: skip
def test_a_bad_value_names_its_field(field: str, value: object) -> None:
    fields: dict[str, Any] = {field: value}
    with pytest.raises(Invalid) as caught:
        RocksDB(**fields)
    assert caught.value.where == f"RocksDB({field}=…)"
    assert caught.value.expected


def test_the_defaults_of_a_job_are_the_defaults_of_a_session() -> None:
    job = {**RocksDB().spark_conf(), **Checkpoint("x").spark_conf()}
    of_the_session = {each.key: each.value for each in DEFAULTS if each.key in job}
    assert len(of_the_session) == 5
    assert {key: job[key] for key in of_the_session} == of_the_session


def test_each_default_differs_from_sparks_and_has_a_reason() -> None:
    every = (*DEFAULTS, *machine_defaults(8, "/venv/bin/python"))
    assert len({each.key for each in every}) == len(every)
    for each in every:
        assert each.value != each.spark_default
        assert each.reason.endswith(".")


def test_the_defaults_of_the_machine() -> None:
    partitions, daemon, python = machine_defaults(8, "/venv/bin/python")
    assert (daemon.key, daemon.value) == ("spark.python.daemon.module", "holdfast.worker.daemon")
    assert (partitions.key, partitions.value) == ("spark.sql.shuffle.partitions", "8")
    assert python == Default("PYSPARK_PYTHON", "/venv/bin/python", "python3 from PATH", python.reason)
    assert python.in_environment
    assert not partitions.in_environment
    assert machine_defaults(1, "python")[0].value == "2"
    with pytest.raises(Invalid):
        machine_defaults(0, "python")
