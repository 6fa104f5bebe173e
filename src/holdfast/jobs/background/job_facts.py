"""What the registry and the savepoint catalog know of a job, as its metrics want it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.jobs.registry.registry import Attempt, Registry
from holdfast.model import JobState, SavepointNote
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
    attempts = registry.attempts(job)
    recovery_ms, since_ms = recoveries(attempts)
    kept = registry.recoveries(job)
    running = attempts[-1] if attempts and attempts[-1].ending is None else None
    taken = newest_savepoints(registry.savepoints(job))
    return JobFacts(
        name=job,
        up=not record.state.terminal,
        failed=record.state is JobState.FAILED,
        started_ms=record.started_ms,
        running_ms=None if running is None else running.running_ms,
        restarts=sum(1 for each in attempts if each.recovers),
        failures=tuple(
            (each.ended_ms, each.failure.cause)
            for each in attempts
            if each.failure is not None and each.ended_ms is not None
        ),
        recovery_ms=kept[-1].recovery_ms if kept else recovery_ms,
        recovering_since_ms=None if record.state.terminal else since_ms,
        savepoints={each.name: taken.get(each.name) for each in registry.queries(job)} if saved else {},
        drills_ms=drills_ms,
    )


def recoveries(attempts: Sequence[Attempt]) -> tuple[int | None, int | None]:
    """What the last recovery took, and since when the one lasts that is not over, in milliseconds.

    It begins with a failure and ends with the next commit, also where several drivers fail before that. A
    job that was started by hand after a failure does not recover, it begins.
    """
    last: int | None = None
    since: int | None = None
    for each in attempts:
        if not each.recovers:
            since = None
        if each.first_commit_ms is not None and since is not None:
            last, since = each.first_commit_ms - since, None
        if each.failure is not None and since is None:
            since = each.ended_ms
    return last, since


def newest_savepoints(notes: Sequence[SavepointNote]) -> dict[str, TakenSavepoint]:
    """The newest savepoint of each query; what failed is none."""
    return {
        each.query: TakenSavepoint(each.at_ms, each.took_ms, each.size_bytes)
        for each in notes
        if each.uri is not None
    }


def newest_drills(catalog: str, queries: Mapping[str, str]) -> dict[str, int]:
    """What the newest drill of each query took that started its job.

    Args:
        catalog: The savepoint catalog.
        queries: The queries' names by their ids.

    Raises:
        Unavailable: The catalog does not answer.
    """
    return {
        queries[each.query_id]: each.recovery_ms
        for each in drills(open_storage(catalog, "savepoints"))
        if each.query_id in queries and each.job is not None
    }
