"""What a supervisor tells whoever started it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.model import JobState


@dataclass(frozen=True, slots=True)
class Event:
    """Something worth telling a person: its kind, a line of text, and the same as values."""

    kind: str
    text: str
    facts: Mapping[str, Any] = field(default_factory=dict)


Tell = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended under its supervisor."""

    state: JobState
    reason: str | None
    attempts: int
    batches: int
