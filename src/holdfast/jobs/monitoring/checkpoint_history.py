"""What a supervisor knows of the batches of a checkpoint: how long they took, and what failed before them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from holdfast.checkpoints.batches import FROM_REGISTRY
from holdfast.checkpoints.values import Batch, BatchFailure
from holdfast.errors import HoldfastError
from holdfast.jobs.registry.registry import Attempt, Registry
from holdfast.jobs.state_home import StateHome
from holdfast.model import BatchProgress
from holdfast.storage import open_storage


def with_registry(home: StateHome, address: str, batches: Sequence[Batch]) -> tuple[Batch, ...]:
    """The batches of a checkpoint with what the jobs of a state home know of them.

    Where no job of it has the checkpoint, they stay as the files tell.
    """
    if not home.registry.exists():
        return tuple(batches)
    registry = Registry(home.registry)
    wanted = open_storage(address).uri
    for job in registry.jobs():
        for query in registry.queries(job.name):
            if _uri(query.checkpoint) == wanted:
                heard = [batch for batch in registry.batches(job.name) if batch.query == query.name]
                return measured_batches(batches, heard, registry.attempts(job.name), query.name)
    return tuple(batches)


def measured_batches(
    batches: Sequence[Batch], heard: Sequence[BatchProgress], attempts: Sequence[Attempt], query: str
) -> tuple[Batch, ...]:
    """The same batches with the durations that the driver reported, and with the failures before each.

    A driver that failed has failed in the batch that was committed next: only one runs at a time.

    Args:
        batches: As the files tell of them.
        heard: What the registry keeps of the query's batches.
        attempts: The job's drivers.
        query: The query's name.
    """
    known = {batch.batch_id: batch for batch in heard}
    failures: dict[int, list[BatchFailure]] = {}
    for attempt in attempts:
        failure, ended_ms = attempt.failure, attempt.ended_ms
        if failure is None or ended_ms is None or failure.query not in (None, query):
            continue
        after = [batch.batch_id for batch in heard if batch.committed_ms > ended_ms]
        before = [batch.batch_id for batch in heard if batch.committed_ms <= ended_ms]
        if not before and (not after or min(after) > 0):
            continue  # the registry does not keep the batches of that time any more
        batch_id = min(after, default=max(before, default=-1) + 1)
        line = f"{failure.error_class}: {failure.line}" if failure.line else failure.error_class
        failures.setdefault(batch_id, []).append(BatchFailure(attempt.number, ended_ms, failure.cause, line))
    # Of batches before and after those that the registry keeps nobody knows what failed.
    watched = range(min(known, default=0), max(known, default=-1) + 1)
    return tuple(
        _measured(
            replace(batch, failures=tuple(failures.get(batch.batch_id, ())))
            if batch.batch_id in watched
            else batch,
            known.get(batch.batch_id),
        )
        for batch in batches
    )


def _measured(batch: Batch, heard: BatchProgress | None) -> Batch:
    if heard is None:
        return batch
    return replace(
        batch,
        committed_ms=heard.committed_ms,
        duration_ms=heard.duration_ms,
        duration_source=FROM_REGISTRY,
    )


def _uri(address: str) -> str | None:
    try:
        return open_storage(address).uri
    except HoldfastError:  # a storage that this machine has no library for
        return None
