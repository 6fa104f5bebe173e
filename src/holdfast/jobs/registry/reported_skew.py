"""What a job's newest batches tell of its keys, out of the registry."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.clock import now_ms
from holdfast.config.settings import Settings
from holdfast.errors import NotFound
from holdfast.jobs.registry.client import Control, JobDetails
from holdfast.jobs.state_home import StateHome
from holdfast.model import SkewReport


def report_job(name: str, home: str | Path | None = None) -> tuple[SkewReport, ...]:
    """The newest report of each name that a job watches.

    Args:
        name: The job's name or id.
        home: The state home; None takes the one that holds here.

    Raises:
        NotFound: There is no such job, or no batch of it has watched its keys.
    """
    place = Settings.resolve({"home": home}, os.environ, Path.cwd()).real_home
    details = Control(StateHome(place), now_ms).details(name)
    return tuple(report for _, report in newest_skew(details))


def newest_skew(details: JobDetails) -> list[tuple[str, SkewReport]]:
    """For each query and name that is watched, the report of the newest batch that had rows.

    Raises:
        NotFound: There is none.
    """
    reports: dict[tuple[str, str], SkewReport] = {}
    for batch in details.batches:
        for report in batch.skew:
            reports[batch.query, report.name] = report
    if not reports:
        job = details.status.job.name
        raise NotFound(
            f"no batch of job {job!r} has watched its keys",
            where=job,
            found=f"{len(details.batches)} batches",
            hint="put hf.skew.watch(df, by=…, name=…) into its plan; for its state at rest see"
            " `holdfast skew CHECKPOINT`",
        )
    return [(query, report) for (query, _), report in sorted(reports.items())]
