"""Operations that take savepoints of jobs, and the one that disposes of them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from holdfast.checkpoints.logs.logs import Logs
from holdfast.checkpoints.record import find_record
from holdfast.errors import Conflict, HoldfastError, Invalid, NotFound
from holdfast.formats.savepoint.manifest import Manifest
from holdfast.jobs.operations.operation_context import OperationContext, undone
from holdfast.jobs.registry.client import JobDetails
from holdfast.jobs.registry.operation_log import Operation
from holdfast.model import JobState, QueryStarted, SavepointNote
from holdfast.savepoints.access import opened
from holdfast.savepoints.catalog.catalog import ids, load, savepoint_uri
from holdfast.savepoints.catalog.leases import TakeLease
from holdfast.savepoints.catalog.removal import delete as remove
from holdfast.savepoints.catalog.removal import sweep
from holdfast.savepoints.proof.proof import prove
from holdfast.savepoints.savepoint_api import delete
from holdfast.savepoints.taking.pace import Pace, seems_to_run
from holdfast.savepoints.taking.planning import check_apart, plan_take
from holdfast.savepoints.taking.taking import check_label, let_go, take
from holdfast.storage import open_storage
from holdfast.storage.port import Storage

_TOKEN_BYTES: Final = 8
STOP_S: Final = 24 * 3600.0


class Savepoint:
    """Takes a savepoint of each query of a job.

    Each is marked with the operation in its manifest, which is written last: whether a killed operation has
    taken it is a matter of looking.
    """

    def run(self, work: OperationContext, operation: Operation) -> Mapping[str, Any]:
        """Take them; where one cannot be taken, none is left."""
        details = work.details(operation)
        running = operation.arguments.get("running", False)
        if running:
            work.control.running(details.status.job.name)
        return taken(work, operation, details)

    def recover(self, work: OperationContext, operation: Operation) -> Mapping[str, Any]:
        """Complete if all are there and whole; else take away those that are. The moment has passed."""
        details = work.details(operation)
        found = _found(work, operation, details)
        if len(found) == len(details.queries) and found:
            return _result(found)
        _take_away(work, operation, found)
        raise undone(operation, f"{len(found)} of {len(details.queries)} savepoints")


class Stop:
    """Stops a job after its batch, then takes a savepoint of each of its queries."""

    def run(self, work: OperationContext, operation: Operation) -> Mapping[str, Any]:
        """Stop and take.

        Raises:
            Conflict: The job does not run, or its supervisor ended before it did.
        """
        details = work.details(operation)
        job = work.control.running(details.status.job.name).job
        _could_be_taken(operation, details)
        work.registry.request(job.name, "stop", work.clock())
        return self._then(work, operation, job.name)

    def recover(self, work: OperationContext, operation: Operation) -> Mapping[str, Any]:
        """Go on if the job was asked to stop; else nothing has happened yet, and nothing will."""
        details = work.details(operation)
        job = details.status.job
        began = operation.started_ms or operation.asked_ms
        if job.started_ms > began:
            raise undone(operation, "the job was stopped, and somebody has started it again since")
        if not work.registry.was_asked(job.name, "stop", began):
            raise undone(operation, "the job had not been asked to stop")
        return self._then(work, operation, job.name)

    @staticmethod
    def _then(work: OperationContext, operation: Operation, job: str) -> Mapping[str, Any]:
        work.until(lambda: _over(work, job), f"job {job!r} has ended", STOP_S)
        details = work.details(operation)
        state = details.status.job.state
        if state is not JobState.FINISHED:
            raise Conflict(
                f"job {job!r} did not end well, and no savepoint of it was taken",
                found=f"{state.value}: {details.status.job.reason or 'its supervisor is gone'}",
                expected="a job that stopped after its batch",
                hint=f"see `holdfast status {job}`; its checkpoint is as it was",
            )
        found = _found(work, operation, details)
        if found and len(found) == len(details.queries):
            return _result(found)
        _take_away(work, operation, found)
        return taken(work, operation, details)


class Dispose:
    """Deletes savepoints, and the bytes that no other one of their catalogs needs."""

    def run(self, work: OperationContext, operation: Operation) -> Mapping[str, Any]:
        """Delete them."""
        tell = work.teller(operation)
        for savepoint in operation.arguments["savepoints"]:
            delete(savepoint, tell=tell)
        return {"savepoints": operation.arguments["savepoints"]}

    def recover(self, work: OperationContext, operation: Operation) -> Mapping[str, Any]:
        """Delete what is still there, and clear up after what was deleted."""
        for savepoint in operation.arguments["savepoints"]:
            catalog, _ = opened(savepoint)
            with suppress(NotFound):
                delete(savepoint)
            with suppress(HoldfastError):  # the next removal does it
                sweep(catalog, clock=work.clock, token=work.chance(_TOKEN_BYTES).hex())
        return {"savepoints": operation.arguments["savepoints"]}


def taken(work: OperationContext, operation: Operation, details: JobDetails) -> Mapping[str, Any]:
    """Take a savepoint of each query of a job, or of none.

    Raises:
        HoldfastError: One could not be taken, and those that were are gone again.
    """
    if not details.queries:
        job = details.status.job.name
        raise Conflict(
            f"job {job!r} has not started a query yet",
            found="no query to take a savepoint of",
            hint=f"see `holdfast status {job}`, and try again when it runs",
        )
    found: dict[str, tuple[str, Manifest]] = {}
    notes = []
    try:
        for query in _chosen(operation, details):
            began = time.monotonic()
            found[query.name] = _take(work, operation, query)
            notes.append(_noted(work, query.name, *found[query.name], began))
    except BaseException:
        if not work.closing.is_set():
            _take_away(work, operation, found)
        raise
    for note in notes:
        work.registry.add_savepoint(details.status.job.name, note)
    return _result(found)


def _take(work: OperationContext, operation: Operation, query: QueryStarted) -> tuple[str, Manifest]:
    checkpoint = open_storage(query.checkpoint)
    catalog = open_storage(operation.arguments["catalog"], "catalog")
    record, _ = find_record(work.home.path, checkpoint)
    made = take(
        checkpoint,
        catalog,
        plan_take(checkpoint, catalog, operation.arguments.get("batch"), record),
        clock=work.clock,
        chance=lambda count: _token(operation, query.name) if count == _TOKEN_BYTES else work.chance(count),
        label=operation.arguments.get("label"),
        deep=bool(operation.arguments.get("deep")),
        operation=operation.operation_id,
        pace=Pace() if seems_to_run(checkpoint, work.clock()) else None,
        tell=work.teller(operation),
    )
    return made.uri, made.manifest


def _found(
    work: OperationContext, operation: Operation, details: JobDetails
) -> dict[str, tuple[str, Manifest]]:
    """The savepoints that this operation has taken and that are whole; one that is not is taken away."""
    catalog = open_storage(operation.arguments["catalog"], "catalog")
    found: dict[str, tuple[str, Manifest]] = {}
    for query in _chosen(operation, details):
        _end_take(catalog, _token(operation, query.name).hex(), work)
        for savepoint_id, manifest in _marked(catalog, operation, query):
            if prove(catalog, savepoint_id).ok:
                found[query.name] = (savepoint_uri(catalog, savepoint_id), manifest)
            else:
                _remove(work, catalog, savepoint_id)
    return found


def _marked(catalog: Storage, operation: Operation, query: QueryStarted) -> Iterator[tuple[str, Manifest]]:
    checkpoint = open_storage(query.checkpoint).uri
    for savepoint_id in ids(catalog):
        with suppress(HoldfastError):  # not complete, damaged or deleted meanwhile: not this one's
            manifest = load(catalog, savepoint_id)
            mark = (manifest.fields.get("operation"), manifest.checkpoint)
            if mark == (operation.operation_id, checkpoint):
                yield savepoint_id, manifest


def _end_take(catalog: Storage, token: str, work: OperationContext) -> None:
    """Clear up after a take of a process that is dead."""
    let_go(catalog, token)
    TakeLease(catalog, token, work.clock).end()


def _take_away(
    work: OperationContext, operation: Operation, found: Mapping[str, tuple[str, Manifest]]
) -> None:
    """Undo what an operation has taken, and clear up the bytes that nobody needs."""
    catalog = open_storage(operation.arguments["catalog"], "catalog")
    for uri, _ in found.values():
        _remove(work, catalog, opened(uri)[1])
    with suppress(HoldfastError):  # a take is under way; the next removal does it
        sweep(catalog, clock=work.clock, token=work.chance(_TOKEN_BYTES).hex())


def _remove(work: OperationContext, catalog: Storage, savepoint_id: str) -> None:
    with suppress(NotFound):
        remove(catalog, savepoint_id, clock=work.clock, token=work.chance(_TOKEN_BYTES).hex())


def _could_be_taken(operation: Operation, details: JobDetails) -> None:
    """Find out what is wrong with a directory or a label before the job has been stopped for nothing."""
    check_label(operation.arguments.get("label"))
    catalog = open_storage(operation.arguments["catalog"], "catalog")
    if not details.queries:
        raise Conflict("the job has not started a query yet", hint="try again when it runs")
    for query in details.queries:
        checkpoint = open_storage(query.checkpoint)
        check_apart(checkpoint, catalog)
        if Logs(checkpoint).newest is None:
            raise NotFound("no batch is committed yet", where=query.checkpoint, hint="try again after one is")
    ids(catalog)


def _chosen(operation: Operation, details: JobDetails) -> list[QueryStarted]:
    """The queries that are meant: all, unless some are named."""
    wanted = operation.arguments.get("queries")
    unknown = sorted(set(wanted or ()) - {each.name for each in details.queries})
    if unknown:
        raise Invalid(
            "the job has no such query",
            found=unknown[0],
            expected=", ".join(each.name for each in details.queries),
        )
    return [each for each in details.queries if not wanted or each.name in wanted]


def _over(work: OperationContext, job: str) -> bool:
    status = next(each for each in work.control.jobs() if each.job.name == job)
    return status.job.state.terminal or not status.supervised


def _token(operation: Operation, query: str) -> bytes:
    """The name of a query's take in the catalog: another process can tell whose it was."""
    return hashlib.sha256(f"{operation.operation_id}:{query}".encode()).digest()[:_TOKEN_BYTES]


def _noted(work: OperationContext, query: str, uri: str, manifest: Manifest, began: float) -> SavepointNote:
    return SavepointNote(
        query=query,
        at_ms=work.clock(),
        took_ms=int((time.monotonic() - began) * 1000),
        uri=uri,
        batch_id=manifest.batch_id,
        size_bytes=manifest.size_bytes,
        new_bytes=manifest.new_bytes,
        problem=None,
    )


def _result(found: Mapping[str, tuple[str, Manifest]]) -> Mapping[str, Any]:
    return {
        "savepoints": [
            {"query": query, "savepoint": uri, "batch": manifest.batch_id, "bytes": manifest.size_bytes}
            for query, (uri, manifest) in found.items()
        ]
    }
