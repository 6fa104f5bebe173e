"""Operations that change nothing."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from holdfast.checkpoints.logs.logs import Logs
from holdfast.jobs.operations.operation_context import OperationContext, RepeatableVerb, no_query_yet
from holdfast.jobs.registry import operation_arguments as arguments
from holdfast.savepoints.savepoint_api import diff, diff_files, verify
from holdfast.storage import open_storage
from holdfast.storage.port import Storage

BATCH_S: Final = 3600.0


class AwaitCheckpoint(RepeatableVerb[arguments.AwaitCheckpoint]):
    """Waits until all that a job has begun to work on is committed.

    That is what a checkpoint is worth: everything read so far is in it. The batch that runs when it is asked
    for has to commit; where none runs, the newest committed batch holds everything already.
    """

    def run(self, work: OperationContext[arguments.AwaitCheckpoint]) -> Mapping[str, Any]:
        """Wait, and say which batch of each query it is.

        Raises:
            Conflict: The job does not run, or it ended meanwhile.
        """
        details = work.details()
        name = details.status.job.name
        work.control.running(name)
        if not details.queries:
            raise no_query_yet(name)
        batches: dict[str, int] = {}
        for query in details.queries:
            storage = open_storage(query.checkpoint)
            offered = Logs(storage).offered
            newest = offered[-1] if offered else 0
            committed = partial(_has_committed, work, name, storage, newest)
            work.until(committed, f"batch {newest} of query {query.name} is committed", BATCH_S)
            batches[query.name] = newest
        return {"batches": batches}


class Verify(RepeatableVerb[arguments.Verify]):
    """Proves a savepoint."""

    def run(self, work: OperationContext[arguments.Verify]) -> Mapping[str, Any]:
        """Read it all."""
        return verify(work.wanted.savepoint, deep=work.wanted.deep, tell=work.teller()).as_dict()


class Diff(RepeatableVerb[arguments.Diff]):
    """Compares two states."""

    def run(self, work: OperationContext[arguments.Diff]) -> Mapping[str, Any]:
        """By keys, or by files alone."""
        if work.wanted.files:
            return diff_files(work.wanted.first, work.wanted.second).as_dict()
        tell = work.teller()
        return diff(work.wanted.first, work.wanted.second, samples=work.wanted.samples, tell=tell).as_dict()


def _has_committed(work: OperationContext[Any], job: str, storage: Storage, batch_id: int) -> bool:
    newest = Logs(storage).newest
    if newest is not None and newest >= batch_id:
        return True
    work.control.running(job)
    return False
