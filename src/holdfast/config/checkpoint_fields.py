"""The fields of a checkpoint's settings: allowed values, Spark settings, and explanations."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from holdfast.config.checks import (
    Check,
    canonical_uri,
    check_fields,
    check_periodic,
    flag,
    one_of,
    optional,
    parse_storage,
    whole,
)
from holdfast.config.setting_report import (
    SettingOutcome,
    SettingReport,
    format_setting,
    kept_by_supervisor,
    shown_duration,
)
from holdfast.config.spark_defaults import (
    CHANGELOG_KEY,
    COMPRESSION_KEY,
    FILE_MANAGER_KEY,
    LOCAL_FILE_MANAGER,
    RETAIN_KEY,
    UNLOAD_KEY,
)
from holdfast.config.units import Duration, exact_duration, optional_ms, parse_duration

DeliveryMode: TypeAlias = Literal["exactly_once", "at_least_once"]
OnCancel: TypeAlias = Literal["retain", "delete"]
UploadCodec: TypeAlias = Literal["lz4", "lzf", "snappy", "zstd"]
MODES: Final = get_args(DeliveryMode)
ON_CANCEL: Final = get_args(OnCancel)
CODECS: Final = get_args(UploadCodec)

# On a restart, Spark reads the last batch and the previous one.
LEAST_RETAINED: Final = 2

_MAKER: Final = "Checkpoint"
_CHECKS: Final[Mapping[str, Check]] = {
    "storage": lambda value, _: parse_storage(value, f"{_MAKER}(storage)"),
    "interval": optional(parse_duration),
    "min_pause": optional(partial(parse_duration, allow_zero=True)),
    "timeout": optional(parse_duration),
    "aligned_timeout": optional(partial(parse_duration, allow_zero=True)),
    "tolerable_failures": partial(whole, least=0),
    "max_concurrent": partial(whole, least=1),
    "mode": partial(one_of, allowed=MODES),
    "unaligned": flag,
    "on_cancel": partial(one_of, allowed=ON_CANCEL),
    "retain": partial(whole, least=LEAST_RETAINED),
    "incremental": flag,
    "compression": partial(one_of, allowed=CODECS),
    "local_recovery": flag,
    "savepoints": optional(parse_storage),
    "savepoint_every": optional(parse_duration),
    "savepoints_retained": partial(whole, least=1),
    "savepoints_drop_expired": flag,
    "record": flag,
}


@dataclass(frozen=True, slots=True)
class CheckpointFields:
    """The base class with the fields of `Checkpoint`, which documents them."""

    storage: str | os.PathLike[str]
    interval: Duration | None = None
    min_pause: Duration | None = None
    timeout: Duration | None = None
    tolerable_failures: int = 0
    max_concurrent: int = 1
    mode: DeliveryMode = "exactly_once"
    unaligned: bool = False
    aligned_timeout: Duration | None = None
    on_cancel: OnCancel = "retain"
    retain: int = 100
    incremental: bool = True
    compression: UploadCodec = "lz4"
    local_recovery: bool = True
    savepoints: str | os.PathLike[str] | None = None
    savepoint_every: Duration | None = None
    savepoints_retained: int = 5
    savepoints_drop_expired: bool = False
    record: bool = True

    def __post_init__(self) -> None:
        check_fields(self, _MAKER, _CHECKS)
        if self.savepoint_every is not None:
            check_periodic(_MAKER, self.savepoints, self.savepoint_every)

    @property
    def interval_ms(self) -> int | None:
        """The interval in milliseconds, or None."""
        return optional_ms(self.interval)

    @property
    def min_pause_ms(self) -> int | None:
        """The minimum pause in milliseconds, or None."""
        return optional_ms(self.min_pause)

    @property
    def timeout_ms(self) -> int | None:
        """The timeout of a batch in milliseconds, or None."""
        return optional_ms(self.timeout)

    @property
    def aligned_timeout_ms(self) -> int | None:
        """The aligned timeout in milliseconds, or None."""
        return optional_ms(self.aligned_timeout)

    @property
    def savepoint_every_ms(self) -> int | None:
        """The time between periodic savepoints in milliseconds; None if the supervisor takes none."""
        return optional_ms(self.savepoint_every)

    @property
    def is_local(self) -> bool:
        """Return whether the checkpoint is on a file system of this machine."""
        return canonical_uri(str(self.storage), Path("/")).startswith("file:")

    def spark_conf(self) -> dict[str, str]:
        """Return the Spark settings of the checkpoint.

        Only `spark.sql.streaming.stateStore.compression.codec` is pinned: Spark stores its value at the first
        start in the offset log and ignores later changes. The changelog setting applies to RocksDB only; the
        memory backend always writes changes.
        """
        return {
            RETAIN_KEY: str(self.retain),
            CHANGELOG_KEY: format_setting(self.incremental),
            COMPRESSION_KEY: self.compression,
            UNLOAD_KEY: format_setting(not self.local_recovery),
        }


_STARTS = (
    "Spark writes a checkpoint with every batch, so the time between checkpoints is the time between the "
    "starts of batches. A trigger set on the job takes precedence."
)


_LOCAL = f", {FILE_MANAGER_KEY} = {LOCAL_FILE_MANAGER.rsplit('.', 1)[-1]}"


def checkpoint_knobs(checkpoint: CheckpointFields) -> tuple[SettingReport, ...]:
    """Return the explanation of every field of a checkpoint, in order."""
    return (
        SettingReport(
            "storage",
            str(checkpoint.storage),
            SettingOutcome.SPARK,
            f"checkpointLocation = {checkpoint.storage}" + (_LOCAL if checkpoint.is_local else ""),
            "Contains everything that a restart needs. Two jobs must never share it; each query of a job "
            "with several has its own directory below it. On a local disk each query uses the file manager "
            "named here; Spark's default starts three times as many processes in each batch.",
        ),
        _interval(checkpoint),
        _min_pause(checkpoint),
        _timeout(checkpoint),
        _tolerable_failures(checkpoint),
        _anyway(
            "max_concurrent",
            checkpoint.max_concurrent,
            checkpoint.max_concurrent == 1,
            "one checkpoint at a time",
            "A batch starts when the previous one is committed, so two checkpoints of a query never overlap.",
        ),
        _anyway(
            "mode",
            checkpoint.mode,
            checkpoint.mode == "exactly_once",
            "state is exactly-once",
            "State, offsets and watermark are committed together for a whole batch. No barrier holds records "
            "back, so a weaker guarantee would gain nothing. Delivery to a sink depends on the sink.",
        ),
        _anyway(
            "unaligned",
            checkpoint.unaligned,
            not checkpoint.unaligned,
            "a checkpoint at the end of a batch",
            "At the end of a batch no record is in flight, so a checkpoint has nothing to overtake. Under a "
            "backlog, smaller batches keep checkpoints short: limit the rows that a source adds to a batch.",
        ),
        SettingReport(
            "aligned_timeout",
            shown_duration(checkpoint.aligned_timeout_ms),
            SettingOutcome.NO_USE,
            "",
            "Checkpoints are never unaligned, so none has to be switched.",
        ),
        _on_cancel(checkpoint),
        *_spark_settings(checkpoint),
        *_savepoints(checkpoint),
        _record(checkpoint),
    )


def _interval(checkpoint: CheckpointFields) -> SettingReport:
    interval = checkpoint.interval_ms
    if interval is None:
        return SettingReport(
            "interval",
            format_setting(None),
            SettingOutcome.ALWAYS,
            "a checkpoint with every batch",
            "Every batch ends with a checkpoint, and the trigger starts the batches.",
        )
    becomes = f"trigger: every {exact_duration(interval)}"
    return SettingReport("interval", exact_duration(interval), SettingOutcome.TRIGGER, becomes, _STARTS)


def _min_pause(checkpoint: CheckpointFields) -> SettingReport:
    pause = checkpoint.min_pause_ms
    if not pause:
        return SettingReport(
            "min_pause",
            shown_duration(pause),
            SettingOutcome.ALWAYS,
            "no minimum pause",
            "A checkpoint is part of its batch, so it never competes with the records that follow it.",
        )
    why = (
        "Spark only spaces the starts of batches, so the driver delays the trigger until the pause after the "
        'end of a batch is over; a stop does not wait for it. The trigger "available now" has no pause.'
    )
    becomes = f"at least {exact_duration(pause)} from the end of a batch to the start of the next"
    return SettingReport("min_pause", exact_duration(pause), SettingOutcome.TRIGGER, becomes, why)


def _timeout(checkpoint: CheckpointFields) -> SettingReport:
    if checkpoint.timeout_ms is None:
        return kept_by_supervisor(
            "timeout",
            format_setting(None),
            "no limit",
            "A batch may take as long as it needs: if a backlog exceeded the limit, the same batch would be "
            "ended again and again.",
        )
    limit = exact_duration(checkpoint.timeout_ms)
    return kept_by_supervisor(
        "timeout",
        limit,
        f"a batch that runs longer than {limit} is a failed checkpoint",
        "Spark has no such limit. A checkpoint ends its batch, so the limit is for the whole batch.",
    )


def _tolerable_failures(checkpoint: CheckpointFields) -> SettingReport:
    count = checkpoint.tolerable_failures
    if checkpoint.timeout_ms is not None:
        return kept_by_supervisor(
            "tolerable_failures",
            str(count),
            f"the driver is restarted after {count + 1} failed checkpoints in a row",
            "Batches over the timeout are counted. A checkpoint that cannot be written is not tolerated: "
            "Spark stops the query, and the restart strategy applies.",
        )
    return _anyway(
        "tolerable_failures",
        count,
        count == 0,
        "a checkpoint that fails stops the query",
        "If a checkpoint cannot be written, Spark stops the query and the restart strategy applies. Only "
        "batches over a timeout can be tolerated, and no timeout is set.",
    )


def _on_cancel(checkpoint: CheckpointFields) -> SettingReport:
    if checkpoint.on_cancel == "retain":
        return SettingReport(
            "on_cancel",
            "retain",
            SettingOutcome.ALWAYS,
            "the checkpoint stays",
            "Spark never deletes a checkpoint with a location of its own.",
        )
    return kept_by_supervisor(
        "on_cancel",
        "delete",
        "`holdfast cancel` deletes the checkpoint",
        "Deleted after the driver has ended, and only on cancel: stop, failure and crash keep it.",
    )


def _savepoints(checkpoint: CheckpointFields) -> tuple[SettingReport, ...]:
    taken = checkpoint.savepoint_every_ms is not None
    outcome = SettingOutcome.SUPERVISOR if taken else SettingOutcome.NO_USE
    every = shown_duration(checkpoint.savepoint_every_ms)

    def report(name: str, value: object, becomes: str, why: str) -> SettingReport:
        return SettingReport(name, format_setting(value), outcome, becomes if taken else "", why)

    return (
        _savepoint_directory(checkpoint),
        report(
            "savepoint_every",
            every,
            f"a savepoint every {every}",
            "Counted from the newest existing savepoint, across restarts. None is taken if no batch was "
            "committed since.",
        ),
        report(
            "savepoints_retained",
            checkpoint.savepoints_retained,
            f"the newest {checkpoint.savepoints_retained} of each query stay",
            "Older savepoints of the supervisor are deleted after each take; those taken by hand are neither "
            "counted nor deleted.",
        ),
        report(
            "savepoints_drop_expired",
            checkpoint.savepoints_drop_expired,
            "savepoints omit expired rows" if checkpoint.savepoints_drop_expired else "all rows are saved",
            "Keyed state with a TTL is read at each take, and stores with expired rows are rewritten. False "
            "links or copies the files, which costs less.",
        ),
    )


def _savepoint_directory(checkpoint: CheckpointFields) -> SettingReport:
    directory = checkpoint.savepoints
    if directory is None:
        why = "Savepoints of the job go to the directory of the last one, else next to the checkpoint."
        return SettingReport("savepoints", format_setting(directory), SettingOutcome.NO_USE, "", why)
    if checkpoint.savepoint_every_ms is None:
        becomes = f"savepoints of the job go to {directory}"
        why = (
            "Used by commands and requests without a directory; savepoint_every=… takes periodic savepoints."
        )
    else:
        becomes = f"a savepoint of each query in {directory}"
        why = (
            "The supervisor takes it while the query runs. A failed take is reported, shown by `holdfast "
            "status` and retried; the job is not affected."
        )
    return SettingReport("savepoints", format_setting(directory), SettingOutcome.SUPERVISOR, becomes, why)


def _anyway(name: str, value: object, holds: bool, becomes: str, why: str) -> SettingReport:
    """Return the report of a setting that always applies, or that has no effect."""
    if holds:
        return SettingReport(name, format_setting(value), SettingOutcome.ALWAYS, becomes, why)
    return SettingReport(name, format_setting(value), SettingOutcome.NO_USE, "", why)


def _record(checkpoint: CheckpointFields) -> SettingReport:
    return kept_by_supervisor(
        "record",
        format_setting(checkpoint.record),
        "the hash of each new file is stored in the state home" if checkpoint.record else "no record",
        "The supervisor reads each new file of a committed batch once, in the background. `holdfast "
        "checkpoint verify` compares files with the record and finds changes that checksums do not show.",
    )


def _spark_settings(checkpoint: CheckpointFields) -> tuple[SettingReport, ...]:
    conf = checkpoint.spark_conf()

    def knob(name: str, value: object, key: str, why: str) -> SettingReport:
        return SettingReport(name, format_setting(value), SettingOutcome.SPARK, f"{key} = {conf[key]}", why)

    return (
        knob(
            "retain",
            checkpoint.retain,
            RETAIN_KEY,
            "The number of batches that a restart, a savepoint or an inspection can go back; older files are "
            "deleted in the background.",
        ),
        knob(
            "incremental",
            checkpoint.incremental,
            CHANGELOG_KEY,
            "A batch uploads its changes, and snapshots follow in the background; otherwise each batch waits "
            "for a snapshot. RocksDB only: the memory backend always writes changes.",
        ),
        knob(
            "compression",
            checkpoint.compression,
            COMPRESSION_KEY,
            "The codec of change and snapshot files. The first start writes it into the checkpoint, and "
            "Spark ignores a later change.",
        ),
        knob(
            "local_recovery",
            checkpoint.local_recovery,
            UNLOAD_KEY,
            "Executors keep their state loaded, so the next batch or a retried task on the same executor "
            "downloads nothing. Otherwise each batch loads its state again.",
        ),
    )
