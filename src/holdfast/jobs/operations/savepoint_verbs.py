"""Operations that take savepoints of jobs, and the one that disposes of them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from holdfast.checkpoints.logs.logs import Logs
from holdfast.checkpoints.record import find_record
from holdfast.errors import Conflict, HoldfastError, NotFound
from holdfast.external.view import open_checkpoint
from holdfast.formats.savepoint.manifest import Manifest
from holdfast.jobs.operations.operation_context import (
    OperationContext,
    no_query_yet,
    no_such_query,
    undone,
)
from holdfast.jobs.registry import operation_arguments as arguments
from holdfast.jobs.registry.client import JobDetails
from holdfast.jobs.registry.registry import note_of
from holdfast.model import JobState, QueryStarted, SavepointNote
from holdfast.savepoints.access import opened
from holdfast.savepoints.catalog.catalog import ids, load, savepoint_uri
from holdfast.savepoints.catalog.leases import TakeLease, let_go
from holdfast.savepoints.catalog.removal import delete as remove
from holdfast.savepoints.catalog.removal import sweep
from holdfast.savepoints.nesting import check_apart, check_catalog
from holdfast.savepoints.proof.proof import prove
from holdfast.savepoints.rewrite.whole_take import take
from holdfast.savepoints.savepoint_api import delete
from holdfast.savepoints.taking.pace import Pace, seems_to_run
from holdfast.savepoints.taking.planning import plan_take
from holdfast.savepoints.taking.taking import check_label
from holdfast.storage import open_storage
from holdfast.storage.port import Storage

_TOKEN_BYTES: Final = 8
STOP_S: Final = 24 * 3600.0


# Savepoints of queries: the address and the manifest of each, by the query's name.
Made = dict[str, tuple[str, Manifest]]


class TakeSavepoint:
    """Takes a savepoint of each query of a job.

    Each is marked with the operation in its manifest, which is written last: whether a killed operation has
    taken it is a matter of looking.
    """

    def run(self, work: OperationContext[arguments.TakeSavepoint]) -> Mapping[str, Any]:
        """Take them; where one cannot be taken, none is left."""
        details = work.details()
        if work.wanted.running:
            work.control.running(details.status.job.name)
        return _Savepoints(work, details).take()

    def recover(self, work: OperationContext[arguments.TakeSavepoint]) -> Mapping[str, Any]:
        """Complete if all are there and whole; else take away those that are. The moment has passed."""
        savepoints = _Savepoints(work, work.details())
        made = savepoints.made()
        if savepoints.complete(made):
            return _result(made)
        savepoints.take_away(made)
        raise undone(work.operation, f"{len(made)} of {len(savepoints.details.queries)} savepoints")


class Stop:
    """Stops a job after its batch, then takes a savepoint of each of its queries."""

    def run(self, work: OperationContext[arguments.TakeSavepoint]) -> Mapping[str, Any]:
        """Stop and take.

        Raises:
            Conflict: The job does not run, or its supervisor ended before it did.
        """
        details = work.details()
        job = work.control.running(details.status.job.name).job
        _Savepoints(work, details).require_possible()
        work.registry.request(job.name, "stop", work.clock())
        return self._await_and_take(work, job.name)

    def recover(self, work: OperationContext[arguments.TakeSavepoint]) -> Mapping[str, Any]:
        """Go on if the job was asked to stop; else nothing has happened yet, and nothing will."""
        job = work.details().status.job
        began = work.operation.started_ms or work.operation.asked_ms
        if job.started_ms > began:
            raise undone(work.operation, "the job was stopped, and somebody has started it again since")
        if not work.registry.was_asked(job.name, "stop", began):
            raise undone(work.operation, "the job had not been asked to stop")
        return self._await_and_take(work, job.name)

    @staticmethod
    def _await_and_take(work: OperationContext[arguments.TakeSavepoint], job: str) -> Mapping[str, Any]:
        work.until(lambda: _is_over(work, job), f"job {job!r} has ended", STOP_S)
        details = work.details()
        state = details.status.job.state
        if state is not JobState.FINISHED:
            raise Conflict(
                f"job {job!r} did not end well, and no savepoint of it was taken",
                found=f"{state.value}: {details.status.job.reason or 'its supervisor is gone'}",
                expected="a job that stopped after its batch",
                hint=f"see `holdfast status {job}`; its checkpoint is as it was",
            )
        savepoints = _Savepoints(work, details)
        made = savepoints.made()
        if savepoints.complete(made):
            return _result(made)
        savepoints.take_away(made)
        return savepoints.take()


class Dispose:
    """Deletes savepoints, and the bytes that no other one of their catalogs needs."""

    def run(self, work: OperationContext[arguments.Dispose]) -> Mapping[str, Any]:
        """Delete them."""
        tell = work.teller()
        for savepoint in work.wanted.savepoints:
            delete(savepoint, tell=tell)
        return {"savepoints": list(work.wanted.savepoints)}

    def recover(self, work: OperationContext[arguments.Dispose]) -> Mapping[str, Any]:
        """Delete what is still there, and clear up after what was deleted."""
        for savepoint in work.wanted.savepoints:
            catalog, _ = opened(savepoint)
            with suppress(NotFound):
                delete(savepoint)
            _sweep(work, catalog)
        return {"savepoints": list(work.wanted.savepoints)}


@dataclass(frozen=True, slots=True)
class _Savepoints:
    """The savepoints that one operation takes of a job's queries."""

    work: OperationContext[arguments.TakeSavepoint]
    details: JobDetails

    def take(self) -> Mapping[str, Any]:
        """Take a savepoint of each query, or of none.

        Raises:
            HoldfastError: One could not be taken, and those that were are gone again.
        """
        job = self.details.status.job.name
        if not self.details.queries:
            raise no_query_yet(job)
        made: Made = {}
        notes = []
        try:
            for query in self._chosen():
                began = time.monotonic()
                made[query.name] = uri, manifest = self._take_one(query)
                notes.append(self._note(query.name, uri, manifest, began))
        except BaseException:
            if not self.work.closing.is_set():
                self.take_away(made)
            raise
        for note in notes:
            self.work.registry.add_savepoint(job, note)
        return _result(made)

    def made(self) -> Made:
        """Those that were taken and are whole; one that is not is taken away."""
        catalog = self._catalog()
        made: Made = {}
        for query in self._chosen():
            # A take of a process that is dead is cleared up first.
            token = self._token(query.name).hex()
            let_go(catalog, token)
            TakeLease(catalog, token, self.work.clock).end()
            for savepoint_id, manifest in self._marked(catalog, query):
                if prove(catalog, savepoint_id).ok:
                    made[query.name] = (savepoint_uri(catalog, savepoint_id), manifest)
                else:
                    self._remove(catalog, savepoint_id)
        return made

    def complete(self, made: Made) -> bool:
        """Whether there is one of each query that is meant."""
        return 0 < len(made) == len(self._chosen())

    def take_away(self, made: Made) -> None:
        """Undo what was taken, and clear up the bytes that nobody needs."""
        catalog = self._catalog()
        for uri, _ in made.values():
            self._remove(catalog, opened(uri)[1])
        _sweep(self.work, catalog)

    def require_possible(self) -> None:
        """See what is wrong with a directory or a label before the job has been stopped for nothing.

        Raises:
            HoldfastError: The savepoints could not be taken.
        """
        check_label(self.work.wanted.label)
        catalog = self._catalog()
        check_catalog(catalog)
        if not self.details.queries:
            raise no_query_yet(self.details.status.job.name)
        for query in self._chosen():
            checkpoint = open_storage(query.checkpoint)
            check_apart(checkpoint, catalog)
            if Logs(checkpoint).newest is None:
                hint = "try again after one is"
                raise NotFound("no batch is committed yet", where=query.checkpoint, hint=hint)
        ids(catalog)

    def _catalog(self) -> Storage:
        return open_storage(self.work.wanted.catalog, "catalog")

    def _chosen(self) -> list[QueryStarted]:
        """The queries that are meant: all, unless some are named."""
        queries, wanted = self.details.queries, self.work.wanted.queries
        unknown = sorted(set(wanted or ()) - {query.name for query in queries})
        if unknown:
            raise no_such_query(unknown[0], [query.name for query in queries])
        return [query for query in queries if not wanted or query.name in wanted]

    def _take_one(self, query: QueryStarted) -> tuple[str, Manifest]:
        work, token = self.work, self._token(query.name)
        checkpoint, catalog = open_checkpoint(query.checkpoint), self._catalog()
        record, _ = find_record(work.home.path, checkpoint)
        taken = take(
            checkpoint,
            catalog,
            plan_take(checkpoint, catalog, None, record),
            clock=work.clock,
            chance=lambda count: token if count == _TOKEN_BYTES else work.chance(count),
            label=self.work.wanted.label,
            deep=self.work.wanted.deep,
            operation=self.work.operation.operation_id,
            pace=Pace() if seems_to_run(checkpoint, work.clock()) else None,
            tell=work.teller(),
        )
        return taken.uri, taken.manifest

    def _token(self, query: str) -> bytes:
        """The name of a query's take in the catalog: another process can tell whose it was."""
        return hashlib.sha256(f"{self.work.operation.operation_id}:{query}".encode()).digest()[:_TOKEN_BYTES]

    def _marked(self, catalog: Storage, query: QueryStarted) -> Iterator[tuple[str, Manifest]]:
        mark = (self.work.operation.operation_id, open_storage(query.checkpoint).uri)
        for savepoint_id in ids(catalog):
            with suppress(HoldfastError):  # not complete, damaged or deleted meanwhile: not this one's
                manifest = load(catalog, savepoint_id)
                if (manifest.fields.get("operation"), manifest.checkpoint) == mark:
                    yield savepoint_id, manifest

    def _note(self, query: str, uri: str, manifest: Manifest, began: float) -> SavepointNote:
        took_ms = int((time.monotonic() - began) * 1000)
        return note_of(query, uri, manifest, at_ms=self.work.clock(), took_ms=took_ms)

    def _remove(self, catalog: Storage, savepoint_id: str) -> None:
        with suppress(NotFound):
            remove(catalog, savepoint_id, clock=self.work.clock, chance=self.work.chance)


def _sweep(work: OperationContext[Any], catalog: Storage) -> None:
    with suppress(HoldfastError):  # a take is under way; the next removal does it
        sweep(catalog, clock=work.clock, chance=work.chance)


def _is_over(work: OperationContext[Any], job: str) -> bool:
    status = next(status for status in work.control.jobs() if status.job.name == job)
    return status.job.state.terminal or not status.supervised


def _result(made: Made) -> Mapping[str, Any]:
    return {
        "savepoints": [
            {"query": query, "savepoint": uri, "batch": manifest.batch_id, "bytes": manifest.size_bytes}
            for query, (uri, manifest) in made.items()
        ]
    }
