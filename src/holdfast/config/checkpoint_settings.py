"""The checkpoint settings of a job, with an explanation of each."""

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
    """The location and the settings of a job's checkpoint.

    Values are checked when the object is created. Durations may be given as text or `timedelta` and are
    stored in milliseconds; a number is milliseconds. `knobs()` explains the effect of each field.

    Spark writes a checkpoint with every batch; checkpoints cannot be skipped, split or overlap. Some settings
    of other engines therefore set the trigger, and some have no effect; the latter are accepted and
    explained.

    The first start writes `compression` into the checkpoint, and Spark ignores a later change; the other
    fields can change with each start.

    Args:
        storage: A local path, relative to where the job runs, or a URI (`file:`, `hdfs:`, `webhdfs:`,
            `s3:`, `s3a:`, `abfss:`, `gs:`, `dbfs:`). One location per job.
        interval: The time from one checkpoint to the next; None for no wait between checkpoints.
        min_pause: The minimum time from the end of a batch, where its checkpoint is complete, to the start of
            the next. It has no effect with the trigger "available now".
        timeout: The time after which a batch counts as a failed checkpoint. None, the default, sets no
            limit: a job with a backlog may need an hour for one batch, and a limit would end the same batch
            again and again.
        tolerable_failures: The number of failed checkpoints in a row before the driver is restarted.
        max_concurrent: The number of concurrent checkpoints. Accepted for compatibility; it is always one
            with micro-batches.
        mode: "exactly_once" or "at_least_once". State is exactly-once either way.
        unaligned: True to let a checkpoint overtake records. No effect with micro-batches.
        aligned_timeout: The time after which an aligned checkpoint becomes unaligned. No effect.
        on_cancel: "retain" to keep the checkpoint when the job is cancelled, or "delete" to delete it.
        retain: The number of batches that stay recoverable; at least 2.
        incremental: True to upload a batch's changes to the checkpoint; False to upload a snapshot of
            RocksDB each time.
        compression: The codec of state files: "lz4", "lzf", "snappy" or "zstd".
        local_recovery: True to keep state loaded on the executors between batches.
        savepoints: The directory of the job's savepoints, a path or URI; commands and requests that name no
            directory use it. The default is the directory of the last savepoint, or `CHECKPOINT.savepoints`
            if there is none.
        savepoint_every: The time from one savepoint of each query to the next, which the supervisor takes
            into `savepoints`. None, the default, takes none.
        savepoints_retained: The number of periodic savepoints to keep; other savepoints are not counted.
        savepoints_drop_expired: True to omit expired rows of keyed state from periodic savepoints. Each take
            then reads the state with a TTL and rewrites the stores that have expired rows.
        record: True to write an integrity record of each committed batch, so that
            `holdfast checkpoint verify` also detects files replaced by older or different valid ones. Each
            new file is read once.

    Raises:
        Invalid: A value is not allowed.

    Example:
        checkpoint = hf.Checkpoint("s3a://shop/checkpoints/visits", interval="1 minute", retain=50)
        assert checkpoint.interval_ms == 60_000
        for setting in checkpoint.knobs():
            print(setting.name, setting.value, setting.why)
    """

    @staticmethod
    def from_flink(
        keys: Mapping[str, object], *, storage: str | os.PathLike[str] | None = None
    ) -> FlinkSettings[Checkpoint]:
        """Convert Flink's settings, with a report on each key.

        Args:
            keys: Keys of Flink 2.x or 1.x with their values. A missing key has Holdfast's default, which can
                differ from Flink's.
            storage: The location of the checkpoint; overrides `execution.checkpointing.dir`.

        Raises:
            Invalid: A value is not allowed, a key of the state or checkpoint settings is misspelt, or the
                location of the checkpoint is missing.
        """
        from holdfast.config.flink import read_flink

        return read_flink(keys, Checkpoint, storage=storage)

    def uri(self, base: Path) -> str:
        """Return the canonical absolute URI of the checkpoint, as Spark expects it.

        Args:
            base: The absolute directory to which a relative path is relative.
        """
        return canonical_uri(str(self.storage), base)

    def default_trigger(self) -> Every | None:
        """Return the trigger set by the interval or the pause; None if neither is set.

        The trigger spaces the starts of batches. The driver enforces the pause after a batch.
        """
        longest = max(self.interval_ms or 0, self.min_pause_ms or 0)
        return Every(longest) if longest else None

    def knobs(self) -> tuple[SettingReport, ...]:
        """Return the explanation of every field, in order."""
        return checkpoint_knobs(self)
