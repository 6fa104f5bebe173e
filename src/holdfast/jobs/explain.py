"""What becomes of each of a job's settings."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.config import Knob
from holdfast.jobs.loader import load_job


@dataclass(frozen=True, slots=True)
class JobExplained:
    """A job's settings, each with what it turns into and why."""

    name: str
    checkpoint: str
    knobs: tuple[Knob, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        knobs = [{**asdict(knob), "outcome": knob.outcome.value} for knob in self.knobs]
        return {"name": self.name, "checkpoint": self.checkpoint, "knobs": knobs}


def explain_job(target: str) -> JobExplained:
    """Load a job file and explain its checkpoint, backend and restart settings; starts nothing."""
    job = load_job(target)
    knobs = (*job.checkpoint.knobs(), *job.backend.knobs(), *job.restart.knobs())
    return JobExplained(job.name, job.checkpoint.uri(Path.cwd()), knobs)
