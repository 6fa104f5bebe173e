"""How long a recovery takes, phase by phase: measured while it happens, and kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.json_shapes import JsonShape, in_json
from holdfast.model import BatchProgress

# What a recovery consists of, in order: noticing that the driver failed, and its end; the strategy's pause;
# looking whether the checkpoint is whole, with the way back to an older one if that was asked for; the job
# file, Spark and the queries; loading state; running the first batch; writing down that it is committed.
PHASES: Final = ("detect", "pause", "verify", "start", "load", "replay", "commit")


@dataclass(frozen=True, slots=True)
class StateSize:
    """What a restart has to load.

    Attributes:
        state_bytes: The bytes of the state's files that the newest batch needs.
        change_files: How many files of changes among them are replayed on top of snapshots.
    """

    state_bytes: int
    change_files: int


@dataclass(frozen=True, slots=True)
class Recovery(JsonShape):
    """What the recovery of one job took.

    Attributes:
        attempt: The attempt that recovered it.
        at_ms: When it failed, or was last heard of.
        cause: What kind of failure it was, and its line.
        phases_ms: What each of `PHASES` took; their sum is the recovery.
        idle_ms: How long the started queries then waited for input. Not counted.
        load_ms: What the tasks of the first batch took together to load state, where Spark tells it.
        slots: How many tasks could run at the same time.
        size: What had to be loaded; None if that could not be found out.
        went_back: Where it went on from, if not from the newest batch.
    """

    attempt: int
    at_ms: int
    cause: str
    phases_ms: Mapping[str, int]
    idle_ms: int = 0
    load_ms: int | None = None
    slots: int = 1
    size: StateSize | None = None
    went_back: str | None = None

    @property
    @in_json
    def recovery_ms(self) -> int:
        """From the failure to the first committed batch, without waiting for input."""
        return sum(self.phases_ms.values())


@dataclass(slots=True)
class Stopwatch:
    """The moments of a recovery as they pass, in epoch milliseconds.

    Attributes:
        failed: When the driver failed, as far as that is known.
        cause: What kind of failure it was, and its line.
        ended: When its end had been noticed, and nothing of it was left.
        resumed: When the strategy's pause was over.
        verify_ms: How long the checkpoint was looked at, between that and the start of the queries.
        running: When the queries had been started.
        slots: How many tasks can run at the same time.
        size: What has to be loaded.
        went_back: Where it goes on from, if not from the newest batch.
    """

    failed: int
    cause: str
    ended: int
    resumed: int = 0
    verify_ms: int = 0
    running: int = 0
    slots: int = 1
    size: StateSize | None = None
    went_back: str | None = None

    def recovery(self, attempt: int, batch: BatchProgress) -> Recovery:
        """What the recovery took, told from its first committed batch."""
        resumed = max(self.resumed, self.ended)
        running = max(self.running, resumed + self.verify_ms)
        began = max(batch.committed_ms - batch.duration_ms, running)
        work = min(batch.duration_ms, max(batch.committed_ms - running, 0))
        commit = min(batch.commit_ms, work)
        # What tasks took together, divided by those at the same time: an estimate.
        load = min((batch.load_ms or 0) // max(self.slots, 1), work - commit)
        phases = (
            max(self.ended - self.failed, 0),
            resumed - self.ended,
            self.verify_ms,
            running - resumed - self.verify_ms,
            load,
            work - commit - load,
            commit,
        )
        return Recovery(
            attempt=attempt,
            at_ms=self.failed,
            cause=self.cause,
            phases_ms=dict(zip(PHASES, phases, strict=True)),
            idle_ms=began - running,
            load_ms=batch.load_ms,
            slots=self.slots,
            size=self.size,
            went_back=self.went_back,
        )
