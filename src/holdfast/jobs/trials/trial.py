"""Run a query on a checkpoint in a sandbox, in a separate process, without its sink."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from holdfast.errors import Failed
from holdfast.jobs import failures
from holdfast.jobs.processes.driver_process import DriverProcess
from holdfast.jobs.processes.protocol import (
    ChildSpec,
    JobFailed,
    Message,
    Refused,
    TrialCommitted,
    TrialDefined,
    TrialDone,
    TrialSession,
    not_for,
)
from holdfast.model import TrialBatch

COMMAND = (sys.executable, "-m", "holdfast.jobs.trials.trial_driver")

Hear = Callable[[Message], None]


@dataclass(frozen=True, slots=True)
class TrialSpec(ChildSpec):
    """The instructions of a trial.

    Attributes:
        checkpoint: The checkpoint in the sandbox.
        origin: The checkpoint that its savepoint was taken from, which identifies the query in the job.
        log: The file for Spark's log.
        most: The maximum number of batches.
        query: The name of the query, if given.
        output: The directory for its rows; None discards them.
        repeat: A checkpoint whose batches are to be run again, one by one; None reads new input.
        or_empty: Run a batch without input if there is none.
        overrides: Settings and parameters of the job.
        conf: Spark settings that override the job's own.
    """

    checkpoint: str
    origin: str
    log: str
    most: int
    query: str | None = None
    output: str | None = None
    repeat: str | None = None
    or_empty: bool = False
    overrides: Mapping[str, str] = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """The result of a trial.

    Attributes:
        job: The job's name.
        batches: The committed batches, in order.
        watermarks: The number of separate watermarks of the query.
        empty: True if the only batch had no input.
        steps_s: The times of `launched`, `defined` and `session`, on the monotonic clock.
    """

    job: str
    batches: tuple[TrialBatch, ...]
    watermarks: int
    empty: bool
    steps_s: Mapping[str, float]


def run_trial(spec: TrialSpec, hear: Hear = lambda _: None) -> TrialOutcome:
    """Run a trial to its end; the child process ends with this one.

    Args:
        spec: The instructions.
        hear: Called with each message of the child: `TrialDefined`, `TrialSession`, `TrialCommitted`.

    Raises:
        Failed: The job failed; the error has the job's failure.
        HoldfastError: The child refused the job.
    """
    steps = {"launched": time.monotonic()}
    process = DriverProcess.start(spec, COMMAND, quiet=True)
    job = spec.target
    last: Message | None = None
    try:
        for message in process.channel.messages():
            if isinstance(message, TrialDefined):
                steps["defined"], job = time.monotonic(), message.name
            elif isinstance(message, TrialSession):
                steps["session"] = time.monotonic()
            elif isinstance(message, (TrialDone, JobFailed, Refused)):
                last = message
                break  # what Spark would still tidy up is in the sandbox
            elif not isinstance(message, TrialCommitted):
                raise not_for("a trial", message)
            hear(message)
    finally:
        process.kill()
        ended = process.reap()
    if isinstance(last, TrialDone):
        return TrialOutcome(job, last.batches, last.watermarks, last.empty, steps)
    if isinstance(last, Refused):
        raise last.error
    failure = last.failure if isinstance(last, JobFailed) else failures.killed(*ended)
    raise Failed(
        "the query failed on the savepoint's state",
        code="HF-E1005",
        where=spec.target,
        found=f"{failure.error_class}: {failure.line}",
        hint="fix the code, or use a savepoint of the same code; only the sandbox was changed",
    )
