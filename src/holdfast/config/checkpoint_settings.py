"""The checkpoint of a job: one object for every knob, and the truth about each."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.config.checks import flag, one_of, refused, whole
from holdfast.config.job.checkpoint_explain import checkpoint_knobs
from holdfast.config.job.trigger import Every
from holdfast.config.locations import canonical_uri, parse_storage
from holdfast.config.setting_report import SettingReport, shown
from holdfast.config.spark_defaults import (
    CHANGELOG_KEY,
    COMPRESSION_KEY,
    FILE_MANAGER_KEY,
    LOCAL_FILE_MANAGER,
    RETAIN_KEY,
    UNLOAD_KEY,
)
from holdfast.config.units import Duration, parse_duration

if TYPE_CHECKING:
    from holdfast.config.flink.flink import FlinkSettings

MODES = ("exactly_once", "at_least_once")
ON_CANCEL = ("retain", "delete")
CODECS = ("lz4", "lzf", "snappy", "zstd")

# On a restart Spark reads the last batch and the one before it.
LEAST_RETAINED = 2


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where and how a job keeps its state, with every knob a checkpoint can have.

    Values are checked when the object is made. Durations may be given as text or `timedelta` and are
    kept in milliseconds; a number is milliseconds. `knobs()` tells what became of each field.

    Spark writes a checkpoint with every batch: none can be skipped, made half-way or overlap another.
    So some knobs become the trigger and some have nothing to change; those are accepted and explained.

    `compression` is written into the checkpoint by its first start, and Spark ignores a later change;
    the other fields can change with each start.

    Args:
        storage: A local path, relative to where the job runs, or a URI (`file:`, `hdfs:`, `webhdfs:`,
            `s3:`, `s3a:`, `abfss:`, `gs:`, `dbfs:`). One job, one place.
        interval: The time from one checkpoint to the next; None for as fast as batches come.
        min_pause: The least time from the end of a batch, which is its checkpoint, to the beginning of the
            next. A job that works off what is there and ends does not pause.
        timeout: A batch that runs longer counts as a failed checkpoint. None, the default, for no
            limit: a job that works off a backlog may rightly need an hour for one batch, and would be
            killed in the same batch for ever.
        tolerable_failures: Failed checkpoints in a row that are borne before the driver is restarted.
        max_concurrent: Checkpoints under way at once. A micro-batch engine has exactly one.
        mode: "exactly_once" or "at_least_once". State is exactly-once either way.
        unaligned: Whether a checkpoint may overtake records. There is nothing to overtake.
        aligned_timeout: When an aligned checkpoint turns unaligned. Never.
        on_cancel: Whether `holdfast cancel` keeps ("retain") or deletes ("delete") the checkpoint.
        retain: Batches that stay recoverable; at least 2.
        incremental: Whether RocksDB uploads a batch's changes and not a snapshot each time.
        compression: The codec of state files: "lz4", "lzf", "snappy" or "zstd".
        local_recovery: Whether executors keep their state loaded between batches.
        savepoints: A directory of savepoints, a path or URI, into which the supervisor takes one of each
            query every `savepoint_every`. None, the default, for none.
        savepoint_every: The time from one savepoint to the next.
        savepoints_retained: How many of those stay; savepoints that somebody else took are not counted.
        record: Whether the supervisor notes what the files are when their batch is committed, so that
            `holdfast checkpoint verify` finds swapped and stale ones too. It reads each new file once.

    Raises:
        Invalid: A value that does not fit, with what is allowed.
    """

    storage: str | os.PathLike[str]
    interval: Duration | None = None
    min_pause: Duration | None = None
    timeout: Duration | None = None
    tolerable_failures: int = 0
    max_concurrent: int = 1
    mode: str = "exactly_once"
    unaligned: bool = False
    aligned_timeout: Duration | None = None
    on_cancel: str = "retain"
    retain: int = 100
    incremental: bool = True
    compression: str = "lz4"
    local_recovery: bool = True
    savepoints: str | os.PathLike[str] | None = None
    savepoint_every: Duration | None = None
    savepoints_retained: int = 5
    record: bool = True

    def __post_init__(self) -> None:
        checked: dict[str, object] = {
            "storage": parse_storage(self.storage, "Checkpoint(storage)"),
            "interval": _optional(self.interval, "interval"),
            "min_pause": _optional(self.min_pause, "min_pause", allow_zero=True),
            "timeout": _optional(self.timeout, "timeout"),
            "aligned_timeout": _optional(self.aligned_timeout, "aligned_timeout", allow_zero=True),
            "tolerable_failures": whole(self.tolerable_failures, _name("tolerable_failures"), least=0),
            "max_concurrent": whole(self.max_concurrent, _name("max_concurrent"), least=1),
            "mode": one_of(self.mode, _name("mode"), MODES),
            "unaligned": flag(self.unaligned, _name("unaligned")),
            "on_cancel": one_of(self.on_cancel, _name("on_cancel"), ON_CANCEL),
            "retain": whole(self.retain, _name("retain"), least=LEAST_RETAINED),
            "incremental": flag(self.incremental, _name("incremental")),
            "compression": one_of(self.compression, _name("compression"), CODECS),
            "local_recovery": flag(self.local_recovery, _name("local_recovery")),
            "savepoints": None
            if self.savepoints is None
            else parse_storage(self.savepoints, _name("savepoints")),
            "savepoint_every": _optional(self.savepoint_every, "savepoint_every"),
            "savepoints_retained": whole(self.savepoints_retained, _name("savepoints_retained"), least=1),
            "record": flag(self.record, _name("record")),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if (self.savepoints is None) != (self.savepoint_every is None):
            lacks = "savepoint_every" if self.savepoint_every is None else "savepoints"
            raise refused(
                _name(lacks), None, "both or none: savepoints=DIR and savepoint_every=TIME belong together"
            )

    @property
    def interval_ms(self) -> int | None:
        """The interval in milliseconds, if one is set."""
        return _optional(self.interval, "interval")

    @property
    def min_pause_ms(self) -> int | None:
        """The least pause in milliseconds, if one is set."""
        return _optional(self.min_pause, "min_pause", allow_zero=True)

    @property
    def timeout_ms(self) -> int | None:
        """The longest time a batch may take, in milliseconds, if there is one."""
        return _optional(self.timeout, "timeout")

    @property
    def aligned_timeout_ms(self) -> int | None:
        """The aligned timeout in milliseconds, if one is set."""
        return _optional(self.aligned_timeout, "aligned_timeout", allow_zero=True)

    @property
    def savepoint_every_ms(self) -> int | None:
        """The time between savepoints in milliseconds, if the supervisor takes some."""
        return _optional(self.savepoint_every, "savepoint_every")

    @staticmethod
    def from_flink(
        keys: Mapping[str, object], *, storage: str | os.PathLike[str] | None = None
    ) -> FlinkSettings[Checkpoint]:
        """Read Flink's own settings, and tell what became of each.

        Args:
            keys: Flink's keys, of 2.x or 1.x, with their values. What is not there keeps Holdfast's
                default, which is not always Flink's.
            storage: Where the checkpoint lies; wins over `execution.checkpointing.dir`.

        Raises:
            Invalid: A value that does not fit, a misspelt key of the state or checkpoint settings, or
                no place for the checkpoint.
        """
        from holdfast.config.flink.flink import read_flink

        return read_flink(keys, Checkpoint, storage=storage)

    def uri(self, base: Path) -> str:
        """Give the one absolute URI of the checkpoint, as Spark takes it.

        Args:
            base: An absolute directory that a relative path is taken from.
        """
        return canonical_uri(str(self.storage), base)

    @property
    def is_local(self) -> bool:
        """Whether it lies in the file system of the machine and not in a shared one."""
        return canonical_uri(str(self.storage), Path("/")).startswith("file:")

    def spark_conf(self) -> dict[str, str]:
        """Give the Spark settings that the checkpoint asks for.

        Of these only `spark.sql.streaming.stateStore.compression.codec` is pinned: Spark keeps in the
        offset log what the first start set, and uses that. The changelog setting speaks to RocksDB
        alone; the memory backend always writes changes.
        """
        conf = {
            RETAIN_KEY: str(self.retain),
            CHANGELOG_KEY: shown(self.incremental),
            COMPRESSION_KEY: self.compression,
            UNLOAD_KEY: shown(not self.local_recovery),
        }
        if self.is_local:
            conf[FILE_MANAGER_KEY] = LOCAL_FILE_MANAGER
        return conf

    def default_trigger(self) -> Every | None:
        """Give the trigger that interval and pause ask for, if they ask for one.

        It spaces the beginnings of batches. The pause after a batch is kept by the driver.
        """
        longest = max(self.interval_ms or 0, self.min_pause_ms or 0)
        return Every(longest) if longest else None

    def knobs(self) -> tuple[SettingReport, ...]:
        """Tell what became of each field, in the order of the fields."""
        return checkpoint_knobs(self)


def _name(field: str) -> str:
    return f"Checkpoint({field}=…)"


def _optional(value: Duration | None, field: str, *, allow_zero: bool = False) -> int | None:
    return None if value is None else parse_duration(value, _name(field), allow_zero=allow_zero)
