"""What the registry and the savepoint catalog know of a job, as its metrics want it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.jobs.registry.registry import Attempt, Registry
from holdfast.model import JobState
from holdfast.observe.job_numbers import JobFacts, TakenSavepoint
from holdfast.savepoints.catalog.drills import drills
from holdfast.storage import open_storage


def facts_of(registry: Registry, job: str, *, saved: bool, drills_ms: Mapping[str, int]) -> JobFacts:
    """A job beside its batches.

    Args:
        registry: What is known of it.
        job: Its name.
        saved: Whether it has savepoints taken.
        drills_ms: What the newest drill of each query took.
    """
    record = registry.job(job)
    attempts, counts = registry.attempts(job), registry.attempt_counts(job)
    recovery_ms, since_ms = recoveries(attempts)
    kept = registry.recoveries(job)
    running = attempts[-1] if attempts and attempts[-1].ending is None else None
    taken = {
        note.query: TakenSavepoint(note.at_ms, note.took_ms, note.size_bytes)
        for note in registry.savepoints(job)
        if note.uri is not None
    }
    return JobFacts(
        name=job,
        up=not record.state.terminal,
        failed=record.state is JobState.FAILED,
        started_ms=record.started_ms,
        running_ms=None if running is None else running.running_ms,
        restarts=counts.restarts,
        failures=counts.causes,
        failed_ms=tuple(
            attempt.ended_ms
            for attempt in attempts
            if attempt.failure is not None and attempt.ended_ms is not None
        ),
        recovery_ms=kept[-1].recovery_ms if kept else recovery_ms,
        recovered_ms=kept[-1].at_ms + kept[-1].recovery_ms + kept[-1].idle_ms if kept else None,
        recovering_since_ms=None if record.state.terminal else since_ms,
        savepoints={query.name: taken.get(query.name) for query in registry.queries(job)} if saved else {},
        drills_ms=drills_ms,
    )


def recoveries(attempts: Sequence[Attempt]) -> tuple[int | None, int | None]:
    """What the last recovery took, and since when the one lasts that is not over, in milliseconds.

    It begins with a failure and ends with the next commit, also where several drivers fail before that. A
    job that was started by hand after a failure does not recover, it begins.
    """
    last: int | None = None
    since: int | None = None
    for attempt in attempts:
        if not attempt.recovers:
            since = None
        if attempt.first_commit_ms is not None and since is not None:
            last, since = attempt.first_commit_ms - since, None
        if attempt.failure is not None and since is None:
            since = attempt.ended_ms
    return last, since


def newest_drills(catalog: str, queries: Mapping[str, str]) -> dict[str, int]:
    """What the newest drill of each query took that started its job.

    Args:
        catalog: The savepoint catalog.
        queries: The queries' names by their ids.

    Raises:
        Unavailable: The catalog does not answer.
    """
    return {
        queries[drill.query_id]: drill.recovery_ms
        for drill in drills(open_storage(catalog, "savepoints"))
        if drill.query_id in queries and drill.job is not None
    }
