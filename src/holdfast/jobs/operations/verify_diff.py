"""Operations that change nothing: a killed one is simply done again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.checkpoints.logs.logs import Logs
from holdfast.errors import Conflict
from holdfast.jobs.operations.operation_context import OperationContext
from holdfast.jobs.registry.operation_log import Operation
from holdfast.savepoints.savepoint_api import diff, diff_files, verify
from holdfast.storage import open_storage

BATCH_S: Final = 3600.0


class Checkpoint:
    """Waits until all that a job has begun to work on is committed.

    That is what a checkpoint is worth: everything read so far is in it. The batch that runs when it is asked
    for has to commit; where none runs, the newest committed batch holds everything already.
    """

    def run(self, work: OperationContext, operation: Operation) -> Mapping[str, Any]:
        """Wait, and say which batch of each query it is.

        Raises:
            Conflict: The job does not run, or it ended meanwhile.
        """
        details = work.details(operation)
        name = details.status.job.name
        work.control.running(name)
        if not details.queries:
            raise Conflict(f"job {name!r} has not started a query yet", hint="try again when it runs")
        batches: dict[str, int] = {}
        for query in details.queries:
            storage = open_storage(query.checkpoint)
            offered = Logs(storage).offered
            wanted = offered[-1] if offered else 0

            def committed(storage: Any = storage, wanted: int = wanted) -> bool:
                newest = Logs(storage).newest
                if newest is not None and newest >= wanted:
                    return True
                work.control.running(name)
                return False

            work.until(committed, f"batch {wanted} of query {query.name} is committed", BATCH_S)
            batches[query.name] = wanted
        return {"batches": batches}

    def recover(self, work: OperationContext, operation: Operation) -> Mapping[str, Any]:
        """Wait again."""
        return self.run(work, operation)


class Verify:
    """Proves a savepoint."""

    def run(self, work: OperationContext, operation: Operation) -> Mapping[str, Any]:
        """Read it all."""
        given = operation.arguments
        proof = verify(given["savepoint"], deep=bool(given.get("deep")), tell=work.teller(operation))
        return proof.as_dict()

    def recover(self, work: OperationContext, operation: Operation) -> Mapping[str, Any]:
        """Read it again."""
        return self.run(work, operation)


class Diff:
    """Puts two states beside each other."""

    def run(self, work: OperationContext, operation: Operation) -> Mapping[str, Any]:
        """By keys, or by files alone."""
        given = operation.arguments
        if given.get("files"):
            return diff_files(given["first"], given["second"]).as_dict()
        samples = int(given.get("samples", 5))
        difference = diff(given["first"], given["second"], samples=samples, tell=work.teller(operation))
        return difference.as_dict()

    def recover(self, work: OperationContext, operation: Operation) -> Mapping[str, Any]:
        """Once more."""
        return self.run(work, operation)
