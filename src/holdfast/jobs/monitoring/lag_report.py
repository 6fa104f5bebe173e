"""How far the queries of a job are behind their sources, by its registry."""

from __future__ import annotations

from holdfast.jobs.registry.client import JobDetails
from holdfast.observe.lag import Lag, lags


def job_lags(details: JobDetails, now_ms: int) -> tuple[Lag, ...]:
    """How far each query is behind each partition of its sources; of a job that has ended, as it was then.

    Args:
        details: The job, with the batches to tell it from.
        now_ms: The clock.
    """
    job = details.status.job
    at_ms = now_ms if details.status.supervised else job.ended_ms or job.updated_ms
    found: list[Lag] = []
    for query in details.queries:
        history = [batch for batch in details.batches if batch.query == query.name]
        if history:
            found += lags(history, at_ms)
    return tuple(found)
