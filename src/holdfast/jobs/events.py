"""Events that a supervisor reports to its caller."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from holdfast.model import BatchProgress, JobState
from holdfast.quantities import counted, rounded_duration


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event for the user: its kind, a line of text, and the same as values."""

    kind: str
    text: str
    facts: Mapping[str, Any] = field(default_factory=dict)


EventHandler = Callable[[JobEvent], None]


class Say(Protocol):
    """Reports an event of a job."""

    def __call__(self, kind: str, text: str, **facts: Any) -> None:
        """Report an event: its kind, a line of text, and the same as values."""


_LOG: Final = logging.getLogger("holdfast.jobs")


def logged(tell: EventHandler) -> EventHandler:
    """Return a handler that also logs each event: batches at DEBUG, all others at INFO."""

    def handle(event: JobEvent) -> None:
        _LOG.log(logging.DEBUG if event.kind == "batch" else logging.INFO, "%s", event.text)
        tell(event)

    return handle


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The result of a supervised job that has ended.

    Attributes:
        state: The final state of the job.
        reason: The reason for the end, or None.
        attempts: The number of attempts.
        batches: The number of batches committed by all attempts.
    """

    state: JobState
    reason: str | None
    attempts: int
    batches: int


def batch_line(batch: BatchProgress) -> str:
    """Return a committed batch as one line."""
    rows = f"{counted(batch.input_rows, 'row')} in {rounded_duration(batch.duration_ms)}"
    state = f", {batch.state_text}" if batch.operators else ""
    late = f", {batch.late_rows:,} late" if batch.late_rows else ""
    return f"{batch.query} batch {batch.batch_id}: {rows}{state}{late}"
