from __future__ import annotations

from typing import Any

import pytest

from holdfast.config.backend import Memory, RocksDB
from holdfast.config.checkpoint_settings import Checkpoint
from holdfast.config.flink import FlinkSettings
from holdfast.config.flink_keys import FLINK_FAMILIES, FLINK_KEYS
from holdfast.config.policies import exponential, failure_rate, fixed_delay, no_restart
from holdfast.config.setting_report import SettingOutcome
from holdfast.errors import Invalid

E = "execution.checkpointing"
R = "state.backend.rocksdb"


def read(**keys: object) -> FlinkSettings[Checkpoint]:
    return Checkpoint.from_flink({f"{E}.dir": "s3://bucket/ckpt", **keys})


def of(settings: FlinkSettings[Checkpoint], key: str) -> SettingOutcome:
    return next(knob.outcome for knob in settings.report if knob.name == key)


def test_a_whole_configuration_of_flink_2() -> None:
    settings = Checkpoint.from_flink(
        {
            f"{E}.interval": "30 s",
            f"{E}.min-pause": "500",
            f"{E}.timeout": "10 min",
            f"{E}.mode": "EXACTLY_ONCE",
            f"{E}.max-concurrent-checkpoints": "1",
            f"{E}.unaligned.enabled": "true",
            f"{E}.aligned-checkpoint-timeout": "0 s",
            f"{E}.tolerable-failed-checkpoints": 2,
            f"{E}.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            f"{E}.num-retained": "20",
            f"{E}.incremental": True,
            f"{E}.local-backup.enabled": "false",
            f"{E}.dir": "hdfs://nn:8020/flink/ckpt",
            f"{E}.savepoint-dir": "hdfs://nn:8020/flink/sp",
            "state.backend.type": "rocksdb",
            f"{R}.memory.fixed-per-tm": "2gb",
            f"{R}.predefined-options": "SPINNING_DISK_OPTIMIZED",
            f"{R}.localdir": "/ssd/rocks",
            f"{R}.files.open": "500",
            "restart-strategy.type": "exponential-delay",
            "restart-strategy.exponential-delay.initial-backoff": "10 s",
            "restart-strategy.exponential-delay.max-backoff": "2 min",
            "restart-strategy.exponential-delay.backoff-multiplier": "1.4",
            "restart-strategy.exponential-delay.jitter-factor": 0.2,
            "restart-strategy.exponential-delay.reset-backoff-threshold": "1 h",
            "restart-strategy.exponential-delay.attempts-before-reset-backoff": "10",
            "parallelism.default": "8",
        }
    )
    assert settings.checkpoint == Checkpoint(
        "hdfs://nn:8020/flink/ckpt",
        interval="30s",
        min_pause="500ms",
        timeout="10m",
        unaligned=True,
        aligned_timeout=0,
        tolerable_failures=2,
        retain=20,
        local_recovery=False,
        savepoints="hdfs://nn:8020/flink/sp",
    )
    assert settings.backend == RocksDB(memory="2g", profile="spinning-disk", local_dir="/ssd/rocks")
    assert settings.restart == exponential("10s", "2m", 1.4, 0.2, "1h", attempts=10)
    assert settings.savepoints == "hdfs://nn:8020/flink/sp"
    assert settings.further_conf == {
        "spark.sql.streaming.stateStore.rocksdb.maxOpenFiles": "500",
        "spark.sql.shuffle.partitions": "8",
    }
    conf = settings.spark_conf()
    assert conf["spark.sql.streaming.minBatchesToRetain"] == "20"
    assert conf["spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB"] == "2048"
    assert conf["spark.sql.shuffle.partitions"] == "8"


def test_a_configuration_of_flink_1() -> None:
    settings = Checkpoint.from_flink(
        {
            "state.backend": "rocksdb",
            "state.backend.incremental": "false",
            "state.backend.local-recovery": True,
            "state.checkpoints.dir": "file:///tmp/flink",
            "state.checkpoints.num-retained": 1,
            "state.savepoints.dir": "file:///tmp/sp",
            f"{E}.unaligned": False,
            "restart-strategy": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "infinite",
            "restart-strategy.fixed-delay.delay": "3 s",
        }
    )
    assert settings.checkpoint == Checkpoint(
        "file:///tmp/flink", retain=2, incremental=False, savepoints="file:///tmp/sp"
    )
    assert settings.backend == RocksDB()
    assert settings.restart == fixed_delay(None, "3s")
    assert "last two batches" in next(k.why for k in settings.report if k.name.endswith("num-retained"))


@pytest.mark.parametrize("key", ["state.savepoints.dir", f"{E}.savepoint-dir"])
def test_flinks_directory_of_savepoints_is_the_jobs(key: str) -> None:
    settings = Checkpoint.from_flink({f"{E}.dir": "/c", key: "/sp"})
    assert (settings.checkpoint.savepoints, settings.checkpoint.savepoint_every) == ("/sp", None)
    report = next(knob for knob in settings.report if knob.name == key)
    assert (report.outcome, report.becomes) == (SettingOutcome.SUPERVISOR, "savepoints of the job go to /sp")


def test_savepoints_are_compressed_as_the_state_files_are() -> None:
    settings = Checkpoint.from_flink({f"{E}.dir": "/c", "state.savepoints.compression": "zstd"})
    (_, report) = settings.report
    assert report.outcome is SettingOutcome.NO_USE
    assert "Checkpoint(compression=…)" in report.why


def test_the_report_has_every_key_in_the_order_given() -> None:
    keys = {f"{E}.dir": "/c", "rest.port": 8081, f"{E}.timeout": "1 min", f"{E}.unaligned": True}
    report = Checkpoint.from_flink(keys).report
    assert [(knob.name, knob.value, knob.outcome) for knob in report] == [
        (f"{E}.dir", "/c", SettingOutcome.SPARK),
        ("rest.port", "8081", SettingOutcome.NO_USE),
        (f"{E}.timeout", "1 min", SettingOutcome.SUPERVISOR),
        (f"{E}.unaligned", "true", SettingOutcome.NO_USE),
    ]
    assert report[1].why == "Not a state or checkpoint setting."


# A value that each reader takes, for the keys that take one.
PLAIN: dict[str, object] = {
    f"{E}.mode": "at_least_once",
    f"{E}.externalized-checkpoint-retention": "DELETE_ON_CANCELLATION",
    f"{R}.predefined-options": "DEFAULT",
    f"{R}.localdir": "/x",
    "state.backend.type": "rocksdb",
    "restart-strategy.type": "none",
    "high-availability.type": "none",
    "restart-strategy.exponential-delay.max-backoff": "2 min",
}
FLAGS = ("enabled", "incremental", "managed", "subdir", "finish", "snapshot-compression")


@pytest.mark.parametrize("entry", FLINK_KEYS, ids=lambda entry: entry.name)
def test_every_key_of_the_table_and_each_older_name_is_told_of(entry: Any) -> None:
    value = PLAIN.get(entry.name)
    if value is None:
        number: object = "1 mb" if entry.name.endswith(("size", "-tm", "-slot", "blocksize")) else "1"
        value = True if entry.name.endswith(FLAGS) else number
    for name in (entry.name, *entry.aliases):
        settings = Checkpoint.from_flink({name: value}, storage="/c")
        assert [knob.name for knob in settings.report] == [name]
        knob = settings.report[0]
        assert knob.why.endswith(".")
        assert knob.why != "Not a Flink setting that Holdfast knows."


def test_no_name_is_in_the_table_twice() -> None:
    names = [name for entry in FLINK_KEYS for name in (entry.name, *entry.aliases)]
    assert len(names) == len(set(names))
    assert not [name for name in names if name.startswith(tuple(prefix for prefix, _ in FLINK_FAMILIES))]


@pytest.mark.parametrize("name", ["hashmap", "filesystem", "jobmanager", "a.b.HashMapStateBackendFactory"])
def test_a_backend_on_the_heap_has_no_use_for_rocksdb(name: str) -> None:
    keys = {"state.backend.type": name, f"{R}.block.cache-size": "64mb", f"{R}.files.open": 5}
    settings = read(**keys)
    assert settings.backend == Memory()
    assert of(settings, f"{R}.block.cache-size") is SettingOutcome.NO_USE
    assert of(settings, f"{R}.files.open") is SettingOutcome.NO_USE
    assert settings.further_conf == {}


@pytest.mark.parametrize("name", ["rocksdb", "forst", "org.x.EmbeddedRocksDBStateBackendFactory"])
def test_a_backend_on_disk_is_rocksdb(name: str) -> None:
    assert read(**{"state.backend.type": name}).backend == RocksDB()


def test_flinks_order_decides_between_settings_of_memory() -> None:
    keys = {f"{R}.memory.fixed-per-tm": "2gb", f"{R}.memory.managed": False}
    settings = read(**keys)
    assert settings.backend == RocksDB(memory="unbounded")
    assert of(settings, f"{R}.memory.fixed-per-tm") is SettingOutcome.NO_USE
    with_slot = read(**keys, **{f"{R}.memory.fixed-per-slot": "1gb"})
    assert with_slot.backend == RocksDB(memory="1g")
    assert of(with_slot, f"{R}.memory.managed") is SettingOutcome.NO_USE
    assert read(**{f"{R}.memory.managed": "true"}).backend == RocksDB()


@pytest.mark.parametrize(
    ("kind", "keys", "expected"),
    [
        ("none", {}, no_restart()),
        ("off", {}, no_restart()),
        (False, {}, no_restart()),
        ("fixeddelay", {"fixed-delay.attempts": 7}, fixed_delay(7)),
        (
            "failure-rate",
            {
                "failure-rate.max-failures-per-interval": "4",
                "failure-rate.failure-rate-interval": "5 min",
                "failure-rate.delay": "0 s",
            },
            failure_rate(4, "5m", "0s"),
        ),
        (None, {"exponential-delay.max-backoff": "2 min"}, exponential(max="2m")),
    ],
)
def test_restart_strategies(kind: object, keys: dict[str, object], expected: object) -> None:
    given = {f"restart-strategy.{name}": value for name, value in keys.items()}
    if kind is not None:
        given["restart-strategy.type"] = kind
    settings = read(**given)
    assert settings.restart == expected
    assert {knob.outcome for knob in settings.report[1:]} == {SettingOutcome.SUPERVISOR}


def test_settings_of_a_strategy_that_is_not_chosen_are_told_of() -> None:
    settings = read(**{"restart-strategy": "none", "restart-strategy.fixed-delay.attempts": 3})
    assert of(settings, "restart-strategy.fixed-delay.attempts") is SettingOutcome.NO_USE


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        (f"{E}.intervall", f"{E}.interval"),
        (f"{E}.min-pauze", f"{E}.min-pause"),
        ("state.backend.typ", "state.backend.type"),
        ("restart-strategy.fixed-delay.atempts", "restart-strategy.fixed-delay.attempts"),
    ],
)
def test_a_misspelt_key_is_refused_with_the_right_one(misspelt: str, meant: str) -> None:
    with pytest.raises(Invalid) as caught:
        read(**{misspelt: "1"})
    assert caught.value.found == misspelt
    assert caught.value.hint == f"did you mean {meant}?"


@pytest.mark.parametrize(
    "key",
    [
        f"{R}.metrics.estimate-num-keys",
        f"{E}.file-merging.enabled",
        "state.latency-track.keyed-state-enabled",
        "state.something.quite.different",
        "jobmanager.rpc.address",
    ],
)
def test_other_keys_are_told_of_and_change_nothing(key: str) -> None:
    settings = read(**{key: "true"})
    assert of(settings, key) is SettingOutcome.NO_USE
    assert settings.checkpoint == Checkpoint("s3://bucket/ckpt")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (f"{E}.interval", "soon"), (f"{E}.interval", "0"), (f"{E}.interval", "-1"),
        (f"{E}.interval", None), (f"{E}.mode", "TWICE"), (f"{E}.num-retained", "0"),
        (f"{E}.num-retained", "many"), (f"{E}.unaligned", "maybe"), (f"{E}.unaligned", 1),
        (f"{E}.max-concurrent-checkpoints", True), (f"{R}.memory.fixed-per-tm", "100"),
        (f"{R}.block.blocksize", "100"), (f"{R}.memory.write-buffer-ratio", "nan"),
        ("state.backend", "redis"), ("restart-strategy", "sometimes"), ("parallelism.default", "-1"),
        ("restart-strategy.exponential-delay.jitter-factor", "x"),
        ("restart-strategy.exponential-delay.backoff-multiplier", "0.1"),
        ("state.checkpoints.dir", "ftp://x/y"),
    ],
)  # fmt: skip
def test_a_bad_value_names_flinks_key(key: str, value: object) -> None:
    keys = {key: value} if key == "state.checkpoints.dir" else {f"{E}.dir": "/c", key: value}
    with pytest.raises(Invalid) as caught:
        Checkpoint.from_flink(keys)
    assert caught.value.where == key
    assert caught.value.expected


def test_two_names_for_one_setting_must_agree() -> None:
    keys = {"state.checkpoints.dir": "/c", f"{E}.num-retained": "5", "state.checkpoints.num-retained": 5}
    assert Checkpoint.from_flink(keys).checkpoint.retain == 5
    with pytest.raises(Invalid) as caught:
        Checkpoint.from_flink({**keys, f"{E}.num-retained": 6})
    assert "state.checkpoints.num-retained" in (caught.value.found or "")


def test_the_place_may_be_given_apart_and_must_be_given() -> None:
    settings = Checkpoint.from_flink({f"{E}.dir": "/c"}, storage="/mine")
    assert settings.checkpoint.storage == "/mine"
    assert of(settings, f"{E}.dir") is SettingOutcome.NO_USE
    with pytest.raises(Invalid) as caught:
        Checkpoint.from_flink({f"{E}.interval": "1 s"})
    assert "storage=" in (caught.value.expected or "")


def test_high_availability_becomes_the_address_of_elections() -> None:
    settings = read(
        **{
            "high-availability.type": "ZOOKEEPER",
            "high-availability.zookeeper.quorum": "a:2181,b:2181",
            "high-availability.zookeeper.path.root": "/teams/flink",
            "high-availability.zookeeper.client.session-timeout": "30 s",
            "high-availability.storageDir": "s3://bucket/ha",
            "high-availability.jobmanager.port": "50010",
        }
    )
    assert (settings.ha, settings.lease_ms) == ("zookeeper://a:2181,b:2181/teams/flink", 30_000)
    assert of(settings, "high-availability.type") is SettingOutcome.SUPERVISOR
    assert of(settings, "high-availability.storageDir") is SettingOutcome.NO_USE
    assert of(settings, "high-availability.jobmanager.port") is SettingOutcome.NO_USE
    becomes = {knob.name: knob.becomes for knob in settings.report}
    assert becomes["high-availability.zookeeper.quorum"] == "--ha zookeeper://a:2181,b:2181/teams/flink"
    assert becomes["high-availability.zookeeper.client.session-timeout"] == "--lease 30s"


def test_one_supervisor_alone_needs_no_elections() -> None:
    settings = read(**{"high-availability": "NONE", "high-availability.zookeeper.quorum": "a:2181"})
    assert (settings.ha, settings.lease_ms) == (None, None)
    assert of(settings, "high-availability.zookeeper.quorum") is SettingOutcome.NO_USE


def test_zookeeper_needs_servers() -> None:
    with pytest.raises(Invalid, match="no ZooKeeper address for the elections"):
        read(**{"high-availability.type": "zookeeper"})
    with pytest.raises(Invalid, match="high-availability"):
        read(**{"high-availability.type": "kubernetes"})
