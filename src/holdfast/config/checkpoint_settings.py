"""The checkpoint of a job: one object for every knob, and the truth about each."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.config.checkpoint_fields import CheckpointFields, checkpoint_knobs
from holdfast.config.checks import canonical_uri
from holdfast.config.policies import Every
from holdfast.config.setting_report import SettingReport

if TYPE_CHECKING:
    from holdfast.config.flink import FlinkSettings


@dataclass(frozen=True, slots=True)
class Checkpoint(CheckpointFields):
    """The location of a job's state and its settings.

    Values are checked when the object is made. Durations may be given as text or `timedelta` and are
    kept in milliseconds; a number is milliseconds. `knobs()` tells what each field becomes.

    Spark writes a checkpoint with every batch: none can be skipped, made half-way or overlap another.
    So some knobs become the trigger and some have nothing to change; those are accepted and explained.

    `compression` is written into the checkpoint by its first start, and Spark ignores a later change;
    the other fields can change with each start.

    Args:
        storage: A local path, relative to where the job runs, or a URI (`file:`, `hdfs:`, `webhdfs:`,
            `s3:`, `s3a:`, `abfss:`, `gs:`, `dbfs:`). One job, one place.
        interval: The time from one checkpoint to the next; None for as fast as batches come.
        min_pause: The least time from the end of a batch, which is its checkpoint, to the beginning of the
            next. A job that works off what exists and ends does not pause.
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
        savepoints: The directory of the job's savepoints, a path or URI; commands and requests that name no
            directory use it. By default that of the last savepoint, else `CHECKPOINT.savepoints`.
        savepoint_every: The time from one savepoint of each query to the next, which the supervisor takes
            into `savepoints`. None, the default, for none.
        savepoints_retained: How many of those stay; savepoints that somebody else took are not counted.
        record: Whether the supervisor notes what the files are when their batch is committed, so that
            `holdfast checkpoint verify` finds swapped and stale ones too. It reads each new file once.

    Raises:
        Invalid: A value that does not fit, with what is allowed.
    """

    @staticmethod
    def from_flink(
        keys: Mapping[str, object], *, storage: str | os.PathLike[str] | None = None
    ) -> FlinkSettings[Checkpoint]:
        """Read Flink's own settings, and tell what each becomes.

        Args:
            keys: Flink's keys, of 2.x or 1.x, with their values. What is missing keeps Holdfast's
                default, which is not always Flink's.
            storage: Where the checkpoint lies; wins over `execution.checkpointing.dir`.

        Raises:
            Invalid: A value that does not fit, a misspelt key of the state or checkpoint settings, or
                no place for the checkpoint.
        """
        from holdfast.config.flink import read_flink

        return read_flink(keys, Checkpoint, storage=storage)

    def uri(self, base: Path) -> str:
        """Give the one absolute URI of the checkpoint, as Spark takes it.

        Args:
            base: An absolute directory that a relative path is taken from.
        """
        return canonical_uri(str(self.storage), base)

    def default_trigger(self) -> Every | None:
        """Give the trigger that interval and pause ask for, if they ask for one.

        It spaces the beginnings of batches. The pause after a batch is kept by the driver.
        """
        longest = max(self.interval_ms or 0, self.min_pause_ms or 0)
        return Every(longest) if longest else None

    def knobs(self) -> tuple[SettingReport, ...]:
        """Tell what each field becomes, in the order of the fields."""
        return checkpoint_knobs(self)
