from __future__ import annotations

import dataclasses
import pickle
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.config.checkpoint_settings import Checkpoint
from holdfast.config.setting_report import SettingOutcome, SettingReport
from holdfast.errors import Invalid

S = "spark.sql.streaming"


def knob(checkpoint: Checkpoint, name: str) -> SettingReport:
    return next(each for each in checkpoint.knobs() if each.name == name)


def test_durations_are_kept_in_milliseconds_however_they_were_written() -> None:
    written = Checkpoint("ckpt", interval="1m30s", timeout=timedelta(minutes=10), min_pause="0s")
    assert (written.interval, written.interval_ms) == (90_000, 90_000)
    assert written.timeout_ms == 600_000
    assert written.min_pause_ms == 0
    assert written.aligned_timeout_ms is None
    assert written == Checkpoint("ckpt", interval=90_000, timeout="PT10M", min_pause=0)
    assert dataclasses.replace(written, retain=7).interval_ms == 90_000
    assert pickle.loads(pickle.dumps(written)) == written


def test_the_spark_settings_of_the_defaults() -> None:
    assert Checkpoint("./checkpoints/coffee-shop", retain=10).spark_conf() == {
        f"{S}.minBatchesToRetain": "10",
        f"{S}.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        f"{S}.stateStore.compression.codec": "lz4",
        f"{S}.stateStore.unloadOnCommit": "false",
    }


def test_the_spark_settings_of_the_opposite() -> None:
    checkpoint = Checkpoint("s3://b/x", incremental=False, compression="zstd", local_recovery=False)
    assert checkpoint.spark_conf() == {
        f"{S}.minBatchesToRetain": "100",
        f"{S}.stateStore.rocksdb.changelogCheckpointing.enabled": "false",
        f"{S}.stateStore.compression.codec": "zstd",
        f"{S}.stateStore.unloadOnCommit": "true",
    }


@pytest.mark.parametrize(
    ("interval", "min_pause", "ms"),
    [(None, None, None), (None, "0s", None), ("5s", None, 5_000), ("5s", "10s", 10_000), ("5s", "2s", 5_000)],
)
def test_the_longer_of_interval_and_pause_is_the_trigger(
    interval: str | None, min_pause: str | None, ms: int | None
) -> None:
    trigger = Checkpoint("x", interval=interval, min_pause=min_pause).default_trigger()
    assert (trigger and trigger.interval_ms) == ms


@pytest.mark.parametrize(
    "checkpoint",
    [
        Checkpoint("x"),
        Checkpoint(
            "s3a://b/x",
            interval="1s",
            min_pause="2s",
            timeout="3s",
            tolerable_failures=4,
            max_concurrent=5,
            mode="at_least_once",
            unaligned=True,
            aligned_timeout="6s",
            on_cancel="delete",
            retain=7,
            incremental=False,
            compression="zstd",
            local_recovery=False,
        ),
    ],
)
def test_every_field_is_explained(checkpoint: Checkpoint) -> None:
    knobs = checkpoint.knobs()
    assert [each.name for each in knobs] == [each.name for each in dataclasses.fields(Checkpoint)]
    for each in knobs:
        assert len(each.why) > 20
        assert each.why.endswith(".")
        assert each.value
        assert bool(each.becomes) == (each.outcome is not SettingOutcome.NO_USE)


@pytest.mark.parametrize(
    ("field", "value", "outcome"),
    [
        ("interval", None, SettingOutcome.ALWAYS),
        ("interval", "1s", SettingOutcome.TRIGGER),
        ("min_pause", "1s", SettingOutcome.TRIGGER),
        ("min_pause", "0s", SettingOutcome.ALWAYS),
        ("timeout", "1m", SettingOutcome.SUPERVISOR),
        ("tolerable_failures", 0, SettingOutcome.ALWAYS),
        ("tolerable_failures", 3, SettingOutcome.NO_USE),
        ("max_concurrent", 1, SettingOutcome.ALWAYS),
        ("max_concurrent", 2, SettingOutcome.NO_USE),
        ("mode", "exactly_once", SettingOutcome.ALWAYS),
        ("mode", "at_least_once", SettingOutcome.NO_USE),
        ("unaligned", False, SettingOutcome.ALWAYS),
        ("unaligned", True, SettingOutcome.NO_USE),
        ("aligned_timeout", "30s", SettingOutcome.NO_USE),
        ("on_cancel", "retain", SettingOutcome.ALWAYS),
        ("on_cancel", "delete", SettingOutcome.SUPERVISOR),
        ("retain", 2, SettingOutcome.SPARK),
    ],
)
def test_what_becomes_of_a_field(field: str, value: object, outcome: SettingOutcome) -> None:
    fields: dict[str, Any] = {field: value}
    assert knob(Checkpoint("x", **fields), field).outcome is outcome


def test_failures_are_counted_once_there_is_a_timeout() -> None:
    found = knob(Checkpoint("x", timeout="1m", tolerable_failures=2), "tolerable_failures")
    assert found.outcome is SettingOutcome.SUPERVISOR
    assert found.becomes == "the driver is restarted after 3 failed checkpoints in a row"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("interval", "0s"), ("interval", "5"), ("timeout", -1), ("min_pause", True),
        ("tolerable_failures", -1), ("tolerable_failures", True), ("max_concurrent", 0),
        ("mode", "EXACTLY_ONCE"), ("mode", None), ("unaligned", "false"), ("on_cancel", "keep"),
        ("retain", 1), ("retain", 2.0), ("retain", 2**31), ("retain", "10"), ("incremental", 1),
        ("compression", "gzip"), ("local_recovery", None),
    ],
)  # fmt: skip
def test_a_bad_value_names_its_field_and_what_is_allowed(field: str, value: object) -> None:
    fields: dict[str, Any] = {field: value}
    with pytest.raises(Invalid) as caught:
        Checkpoint("x", **fields)
    assert caught.value.where == f"Checkpoint({field}=…)"
    assert caught.value.found == repr(value)
    assert caught.value.expected


SCHEMES = (
    "file:/d/c",
    "hdfs://nn:8020/c",
    "hdfs:/c",
    "webhdfs://nn:9870/c",
    "s3://b/c",
    "s3a://b/c",
    "gs://b/c",
    "dbfs:/c",
)


@pytest.mark.parametrize("storage", [*SCHEMES, "abfss://box@account.dfs.core.windows.net/c", "rel/c", "/abs"])
def test_a_place_is_kept_as_written(storage: str) -> None:
    assert Checkpoint(storage).storage == storage


@pytest.mark.parametrize(
    "storage",
    ["", " x", "~/c", "a\nb", "a\0b", "ftp://h/c", "C:\\c", "s3://", "s3a:///c", "s3:/c", "gs://",
     "file://host/c", "file:c", "file://", "hdfs:c", "hdfs:", "webhdfs:/c", None, 3, b"x"],
)  # fmt: skip
def test_a_place_that_leads_nowhere_is_refused(storage: object) -> None:
    with pytest.raises(Invalid) as caught:
        Checkpoint(storage)  # type: ignore[arg-type]
    assert caught.value.where == "Checkpoint(storage)"


@pytest.mark.parametrize(
    ("storage", "uri"),
    [
        ("/data//c/", "file:///data/c"),
        ("FILE:///data/c", "file:///data/c"),
        ("file://localhost/data/c", "file:///data/c"),
        ("s3://bucket/a//b/", "s3a://bucket/a/b"),
        ("s3a://bucket", "s3a://bucket/"),
        ("hdfs:/c", "hdfs:///c"),
        ("hdfs://nn:8020/c/", "hdfs://nn:8020/c"),
        ("dbfs:/c", "dbfs:///c"),
    ],
)
def test_one_place_has_one_uri(storage: str, uri: str) -> None:
    assert Checkpoint(storage).uri(Path("/elsewhere")) == uri


def test_a_relative_place_is_taken_from_the_base_and_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    here = tmp_path.resolve()
    assert Checkpoint("./real/a b%20c").uri(tmp_path) == f"file://{here}/real/a b%20c"
    assert Checkpoint(Path("link") / "x").uri(tmp_path) == f"file://{here}/real/x"
    assert Checkpoint("real/../real/x").uri(tmp_path) == f"file://{here}/real/x"


def test_an_error_reads_well() -> None:
    with pytest.raises(Invalid) as caught:
        Checkpoint("x", retain=1)
    assert str(caught.value) == (
        f"invalid value for Checkpoint(retain=…) [{caught.value.code}]\n"
        "  found 1, expected a whole number of at least 2"
    )
    assert re.search(r"local path.*hdfs:.*s3a:", _refusal("ftp://x/y"))


def _refusal(storage: str) -> str:
    with pytest.raises(Invalid) as caught:
        Checkpoint(storage)
    return caught.value.expected or ""
