"""What the files of a checkpoint, and this machine, say of who may be using it.

Nothing in a checkpoint says whether a plain query runs on it. This is the evidence that a person decides by.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median_high
from typing import Final

from holdfast.checkpoints.guard.checkpoint_lease import LeaseNote
from holdfast.checkpoints.guard.processes import ProcessScan, scan_processes
from holdfast.checkpoints.logs.logs import Logs, written_ms
from holdfast.config.locations import local_path
from holdfast.config.units import rounded_duration
from holdfast.errors import HoldfastError
from holdfast.json_shapes import JsonShape, json_as
from holdfast.layout import Log
from holdfast.storage.port import Storage

# So many of the newest batches tell what is usual.
_BATCHES: Final = 20


@dataclass(frozen=True, slots=True)
class CheckpointUsage(JsonShape):
    """The evidence of a query that may be using a checkpoint.

    Attributes:
        uri: The checkpoint.
        planned: The newest batch that was planned.
        planned_age_ms: How long ago.
        committed: The newest batch that was committed.
        committed_age_ms: How long ago.
        interval_ms: How far its batches usually are apart; None with fewer than two.
        scan: The processes of this machine that have to do with it.
        lease: The lease beside it; None if nobody has it, and where that was not looked at.
    """

    uri: str = field(metadata=json_as("checkpoint"))
    planned: int | None = field(metadata=json_as("planned_batch"))
    planned_age_ms: int | None
    committed: int | None = field(metadata=json_as("committed_batch"))
    committed_age_ms: int | None
    interval_ms: int | None
    scan: ProcessScan = field(metadata=json_as("processes"))
    lease: LeaseNote | None = None

    @property
    def silent_ms(self) -> int | None:
        """How long no batch has been planned or committed."""
        ages = [age for age in (self.planned_age_ms, self.committed_age_ms) if age is not None]
        return min(ages, default=None)

    def lines(self) -> list[str]:
        """The evidence, a line each."""
        lines = [
            _line("newest planned batch", self.planned, self.planned_age_ms),
            _line("newest committed batch", self.committed, self.committed_age_ms),
        ]
        if self.planned is not None and self.planned != self.committed:
            lines.append(f"batch {self.planned} is planned and not committed")
        if self.interval_ms is not None:
            lines.append(f"its batches are usually {rounded_duration(self.interval_ms)} apart")
        if self.lease is not None:
            lines.append(str(self.lease))
        return [*lines, *self.scan.lines()]


def usage_of(checkpoint: Storage, now_ms: int) -> CheckpointUsage:
    """Gather the evidence; changes nothing.

    Cost: two listings, the offsets of some batches, and on Linux a look at each process.
    """
    place = local_path(checkpoint.uri)
    logs = Logs(checkpoint)
    planned = max(logs.offered, default=None)
    planned_ms = _planned_times(logs)

    def age_ms(log: Log, batch_id: int | None, *noted_ms: int) -> int | None:
        file_ms = None if batch_id is None else written_ms(checkpoint, log, batch_id)
        times = [*noted_ms, *([] if file_ms is None else [file_ms])]
        return max(0, now_ms - max(times)) if times else None

    return CheckpointUsage(
        uri=checkpoint.uri,
        planned=planned,
        planned_age_ms=age_ms(Log.OFFSETS, planned, *planned_ms[-1:]),
        committed=logs.newest,
        committed_age_ms=age_ms(Log.COMMITS, logs.newest),
        interval_ms=_interval(planned_ms),
        scan=ProcessScan(possible=False) if place is None else scan_processes(place),
    )


def _planned_times(logs: Logs) -> list[int]:
    """When the newest batches were planned, as the offset log says; a damaged file says nothing."""
    times = []
    for batch_id in logs.offered[-_BATCHES:]:
        try:
            offsets = logs.offsets(batch_id)
        except HoldfastError:
            continue
        if offsets is not None and offsets.timestamp_ms > 0:
            times.append(offsets.timestamp_ms)
    return times


def _interval(times: list[int]) -> int | None:
    gaps = [later - earlier for earlier, later in pairwise(times) if later > earlier]
    return median_high(gaps) if gaps else None


def _line(what: str, batch_id: int | None, age_ms: int | None) -> str:
    if batch_id is None:
        return f"{what}: none"
    return f"{what}: {batch_id}" + ("" if age_ms is None else f", {rounded_duration(age_ms)} ago")
