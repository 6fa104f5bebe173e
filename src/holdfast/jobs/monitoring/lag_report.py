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
    at_ms = details.judged_ms(now_ms)
    histories = (details.batches_of(query.name) for query in details.queries)
    return tuple(lag for history in histories if history for lag in lags(history, at_ms))
