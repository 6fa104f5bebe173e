"""What becomes of each of a job's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.config.locations import local_path
from holdfast.config.setting_report import SettingReport
from holdfast.jobs.definition import Job
from holdfast.jobs.loader import load_job
from holdfast.json_shapes import JsonShape


@dataclass(frozen=True, slots=True)
class JobExplained(JsonShape):
    """A job's settings, each with what it turns into and why.

    Attributes:
        name: The job.
        checkpoint: Where its queries keep their state.
        goes_on: Whether a start would go on from a checkpoint: `yes`, `no, it starts anew`, or that it
            cannot be seen from here.
        knobs: Its settings.
    """

    name: str
    checkpoint: str
    goes_on: str
    knobs: tuple[SettingReport, ...]


def explain_job(target: str, overrides: Mapping[str, str] | None = None) -> JobExplained:
    """Load a job file and explain its settings; starts nothing."""
    return explained(load_job(target).with_overrides(overrides or {}))


def explained(job: Job) -> JobExplained:
    """Explain the settings of a job."""
    knobs = (
        *job.checkpoint.knobs(),
        *job.backend.knobs(),
        *job.restart.knobs(),
        *job.recovery.knobs(),
        *job.alerts.knobs(),
    )
    uri = job.checkpoint.uri(Path.cwd())
    return JobExplained(job.name, uri, _goes_on(local_path(uri)), knobs)


def _goes_on(place: Path | None) -> str:
    if place is None:
        return "unknown: the checkpoint is not on this machine"
    # One query has its checkpoint there, several have theirs below it.
    is_there = any((folder / "metadata").is_file() for folder in (place, *place.glob("*/")))
    return "yes, from its checkpoint" if is_there else "no, it starts anew"
