# ruff: noqa: D102 - the fields are described where people set them
"""The words for every field of a checkpoint: what became of it, and why."""

from __future__ import annotations

from typing import Protocol

from holdfast.config.setting_report import SettingOutcome, SettingReport, shown
from holdfast.config.spark_defaults import (
    CHANGELOG_KEY,
    COMPRESSION_KEY,
    FILE_MANAGER_KEY,
    LOCAL_FILE_MANAGER,
    RETAIN_KEY,
    UNLOAD_KEY,
)
from holdfast.config.units import exact_duration

_STARTS = (
    "Spark writes a checkpoint with every batch, so the time between checkpoints is the time between the "
    "beginnings of batches. A trigger named on the job wins."
)


_LOCAL = f", {FILE_MANAGER_KEY} = {LOCAL_FILE_MANAGER.rsplit('.', 1)[-1]}"


class CheckpointFields(Protocol):
    """What a checkpoint's settings are, once they are checked; see `Checkpoint`."""

    @property
    def storage(self) -> object: ...
    @property
    def is_local(self) -> bool: ...
    @property
    def interval_ms(self) -> int | None: ...
    @property
    def min_pause_ms(self) -> int | None: ...
    @property
    def timeout_ms(self) -> int | None: ...
    @property
    def aligned_timeout_ms(self) -> int | None: ...
    @property
    def tolerable_failures(self) -> int: ...
    @property
    def max_concurrent(self) -> int: ...
    @property
    def mode(self) -> str: ...
    @property
    def unaligned(self) -> bool: ...
    @property
    def on_cancel(self) -> str: ...
    @property
    def retain(self) -> int: ...
    @property
    def incremental(self) -> bool: ...
    @property
    def compression(self) -> str: ...
    @property
    def local_recovery(self) -> bool: ...
    @property
    def savepoints(self) -> object: ...
    @property
    def savepoint_every_ms(self) -> int | None: ...
    @property
    def savepoints_retained(self) -> int: ...
    @property
    def record(self) -> bool: ...

    def spark_conf(self) -> dict[str, str]:
        """The Spark settings that the checkpoint asks for."""

    def knobs(self) -> tuple[SettingReport, ...]:
        """What became of each field."""


def checkpoint_knobs(checkpoint: CheckpointFields) -> tuple[SettingReport, ...]:
    """Explain every field of a checkpoint, in the order of the fields."""
    return (
        SettingReport(
            "storage",
            str(checkpoint.storage),
            SettingOutcome.SPARK,
            f"checkpointLocation = {checkpoint.storage}" + (_LOCAL if checkpoint.is_local else ""),
            "Everything that a restart needs lies there. Two jobs must never share it; a job with several "
            "queries gives each its own directory below it. For a local place Spark is told to leave its "
            "usual file manager, which starts over a hundred processes in each batch.",
        ),
        _interval(checkpoint),
        _min_pause(checkpoint),
        _timeout(checkpoint),
        _tolerable_failures(checkpoint),
        _max_concurrent(checkpoint),
        _mode(checkpoint),
        _unaligned(checkpoint),
        _aligned_timeout(checkpoint),
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
            shown(None),
            SettingOutcome.ALWAYS,
            "a checkpoint with every batch",
            "Every batch ends in a checkpoint, and batches come as the trigger says.",
        )
    becomes = f"trigger: every {exact_duration(interval)}"
    return SettingReport("interval", exact_duration(interval), SettingOutcome.TRIGGER, becomes, _STARTS)


def _min_pause(checkpoint: CheckpointFields) -> SettingReport:
    pause = checkpoint.min_pause_ms
    if not pause:
        value = shown(None) if pause is None else exact_duration(pause)
        return SettingReport(
            "min_pause",
            value,
            SettingOutcome.ALWAYS,
            "no pause is forced",
            "A batch and its checkpoint are one piece of work, so a checkpoint never competes with the "
            "records that follow it.",
        )
    why = (
        "Spark only spaces the beginnings of batches, so the driver holds the trigger back until the pause "
        "after the end of a batch is over; a stop does not wait for it. A trigger that works off what is "
        "there and ends has no pause."
    )
    becomes = f"at least {exact_duration(pause)} from the end of a batch to the beginning of the next"
    return SettingReport("min_pause", exact_duration(pause), SettingOutcome.TRIGGER, becomes, why)


def _timeout(checkpoint: CheckpointFields) -> SettingReport:
    if checkpoint.timeout_ms is None:
        return SettingReport(
            "timeout",
            shown(None),
            SettingOutcome.SUPERVISOR,
            "no limit",
            "A batch may take as long as it needs: a limit that a backlog exceeds would kill the same "
            "batch for ever.",
        )
    limit = exact_duration(checkpoint.timeout_ms)
    return SettingReport(
        "timeout",
        limit,
        SettingOutcome.SUPERVISOR,
        f"a batch that runs longer than {limit} is a failed checkpoint",
        "Spark has no such limit. The checkpoint is the end of its batch, so the whole batch is timed.",
    )


def _tolerable_failures(checkpoint: CheckpointFields) -> SettingReport:
    count = checkpoint.tolerable_failures
    if checkpoint.timeout_ms is not None:
        return SettingReport(
            "tolerable_failures",
            str(count),
            SettingOutcome.SUPERVISOR,
            f"the driver is restarted after {count + 1} failed checkpoints in a row",
            "Batches over the timeout are counted. A checkpoint that cannot be written is not borne: Spark "
            "stops the query, and the restart strategy decides.",
        )
    outcome = SettingOutcome.ALWAYS if count == 0 else SettingOutcome.NO_USE
    return SettingReport(
        "tolerable_failures",
        str(count),
        outcome,
        "a checkpoint that fails stops the query" if count == 0 else "",
        "A batch whose checkpoint cannot be written has not happened, so Spark stops the query and the "
        "restart strategy decides. Only batches over a timeout can be borne, and no timeout is set.",
    )


def _max_concurrent(checkpoint: CheckpointFields) -> SettingReport:
    count = checkpoint.max_concurrent
    return SettingReport(
        "max_concurrent",
        str(count),
        SettingOutcome.ALWAYS if count == 1 else SettingOutcome.NO_USE,
        "one checkpoint at a time" if count == 1 else "",
        "A batch begins when the one before it is committed, so two checkpoints of a query never overlap.",
    )


def _mode(checkpoint: CheckpointFields) -> SettingReport:
    exactly = checkpoint.mode == "exactly_once"
    return SettingReport(
        "mode",
        checkpoint.mode,
        SettingOutcome.ALWAYS if exactly else SettingOutcome.NO_USE,
        "state is exactly-once" if exactly else "",
        "State, offsets and watermark are committed together for a whole batch. No barrier holds records "
        "back, so a weaker promise would gain nothing. What reaches a sink is for the sink to promise.",
    )


def _unaligned(checkpoint: CheckpointFields) -> SettingReport:
    return SettingReport(
        "unaligned",
        shown(checkpoint.unaligned),
        SettingOutcome.NO_USE if checkpoint.unaligned else SettingOutcome.ALWAYS,
        "" if checkpoint.unaligned else "a checkpoint at the end of a batch",
        "At the end of a batch no record is under way, so there is nothing for a checkpoint to overtake. "
        "Under a backlog, smaller batches keep checkpoints short: limit what a source gives to one batch.",
    )


def _aligned_timeout(checkpoint: CheckpointFields) -> SettingReport:
    limit = checkpoint.aligned_timeout_ms
    return SettingReport(
        "aligned_timeout",
        shown(None) if limit is None else exact_duration(limit),
        SettingOutcome.NO_USE,
        "",
        "Checkpoints are never unaligned here, so there is no moment to change over.",
    )


def _on_cancel(checkpoint: CheckpointFields) -> SettingReport:
    if checkpoint.on_cancel == "retain":
        return SettingReport(
            "on_cancel",
            "retain",
            SettingOutcome.ALWAYS,
            "the checkpoint stays",
            "Spark never deletes a checkpoint that was given a place.",
        )
    return SettingReport(
        "on_cancel",
        "delete",
        SettingOutcome.SUPERVISOR,
        "`holdfast cancel` deletes the checkpoint",
        "It happens once the driver has ended, and only on cancel: stop, failure and a crash keep it.",
    )


def _savepoints(checkpoint: CheckpointFields) -> tuple[SettingReport, ...]:
    every = checkpoint.savepoint_every_ms
    outcome = SettingOutcome.NO_USE if every is None else SettingOutcome.SUPERVISOR
    time = shown(None) if every is None else exact_duration(every)
    return (
        SettingReport(
            "savepoints",
            shown(checkpoint.savepoints),
            outcome,
            "" if every is None else f"a savepoint of each query in {checkpoint.savepoints}",
            "The supervisor takes it while the query runs. One that fails is told, shown by `holdfast "
            "status` and tried again; the job is not touched.",
        ),
        SettingReport(
            "savepoint_every",
            time,
            outcome,
            "" if every is None else f"a savepoint every {time}",
            "Counted from the newest one that is there, over restarts. Where no batch was committed "
            "since, there is nothing to take.",
        ),
        SettingReport(
            "savepoints_retained",
            str(checkpoint.savepoints_retained),
            outcome,
            "" if every is None else f"the newest {checkpoint.savepoints_retained} of each query stay",
            "Older ones that the supervisor took are deleted after each take; those that somebody took by "
            "hand are neither counted nor deleted.",
        ),
    )


def _record(checkpoint: CheckpointFields) -> SettingReport:
    return SettingReport(
        "record",
        shown(checkpoint.record),
        SettingOutcome.SUPERVISOR,
        "each new file's hash is kept in the state home" if checkpoint.record else "no record",
        "The supervisor reads each new file of a committed batch once, in the background. `holdfast "
        "checkpoint verify` compares with it, and finds what checksums cannot tell.",
    )


def _spark_settings(checkpoint: CheckpointFields) -> tuple[SettingReport, ...]:
    conf = checkpoint.spark_conf()

    def knob(name: str, value: object, key: str, why: str) -> SettingReport:
        return SettingReport(name, shown(value), SettingOutcome.SPARK, f"{key} = {conf[key]}", why)

    return (
        knob(
            "retain",
            checkpoint.retain,
            RETAIN_KEY,
            "So many batches back a restart, a savepoint or an inspection can go; older files are deleted "
            "in the background.",
        ),
        knob(
            "incremental",
            checkpoint.incremental,
            CHANGELOG_KEY,
            "A batch uploads what it changed, and whole snapshots follow in the background; otherwise "
            "each batch waits for a snapshot. For RocksDB: the memory backend always writes changes.",
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
            "downloads nothing. Otherwise each batch loads its state anew.",
        ),
    )
