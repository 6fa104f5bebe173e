"""Events that a supervisor reports to its caller."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from holdfast.config.units import counted, rounded_duration
from holdfast.model import BatchProgress, JobState


@dataclass(frozen=True, slots=True)
class Event:
    """Something worth telling a person: its kind, a line of text, and the same as values."""

    kind: str
    text: str
    facts: Mapping[str, Any] = field(default_factory=dict)


EventHandler = Callable[[Event], None]


class Say(Protocol):
    """Tells an event of a job."""

    def __call__(self, kind: str, text: str, **facts: Any) -> None:
        """Its kind, a line of text, and the same as values."""


_LOG: Final = logging.getLogger("holdfast.jobs")


def logged(tell: EventHandler) -> EventHandler:
    """A handler that also logs each event: batches at DEBUG, everything else at INFO."""

    def handle(event: Event) -> None:
        _LOG.log(logging.DEBUG if event.kind == "batch" else logging.INFO, "%s", event.text)
        tell(event)

    return handle


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The end of a job under its supervisor."""

    state: JobState
    reason: str | None
    attempts: int
    batches: int


def batch_line(batch: BatchProgress) -> str:
    """A committed batch in a line."""
    rows = f"{counted(batch.input_rows, 'row')} in {rounded_duration(batch.duration_ms)}"
    state = f", {batch.state_text}" if batch.operators else ""
    late = f", {batch.late_rows:,} late" if batch.late_rows else ""
    return f"{batch.query} batch {batch.batch_id}: {rows}{state}{late}"
