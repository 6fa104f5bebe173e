"""Operations on savepoints: take, dispose, restore, fork, verify and diff."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from holdfast import layout
from holdfast.changes.take_and_restore import without_expired
from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.checkpoints.logs import Logs
from holdfast.checkpoints.record import find_record
from holdfast.errors import Conflict, HoldfastError, Invalid, NotFound, Unavailable
from holdfast.external.view import open_checkpoint
from holdfast.formats.manifest import Manifest
from holdfast.formats.text import foreign_json
from holdfast.jobs.registry import operation_log as arguments
from holdfast.jobs.registry.client import Control, JobDetails
from holdfast.jobs.registry.operation_log import Arguments, MakeCheckpoint, Operation, Operations
from holdfast.jobs.registry.registry import Registry, note_of
from holdfast.jobs.state_home import StateHome
from holdfast.model import JobState, QueryStarted, SavepointNote
from holdfast.savepoints.address import StateAddress
from holdfast.savepoints.catalog import ids, load, savepoint_uri
from holdfast.savepoints.copying import Pace, seems_to_run
from holdfast.savepoints.leases import TakeLease, let_go
from holdfast.savepoints.nesting import check_apart, check_catalog
from holdfast.savepoints.planning import plan_take
from holdfast.savepoints.proof import prove
from holdfast.savepoints.removal import delete as remove
from holdfast.savepoints.removal import sweep
from holdfast.savepoints.restoring import Restored, withdraw
from holdfast.savepoints.savepoint_api import delete, diff, diff_files, verify
from holdfast.savepoints.taking import check_label
from holdfast.savepoints.whole_take import take
from holdfast.storage import open_storage
from holdfast.storage.port import Storage

A = TypeVar("A", bound=Arguments)

_TELL_S: Final = 0.5
LOOK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class OperationContext(Generic[A]):
    """One operation and its environment.

    Attributes:
        operation: The operation as recorded.
        wanted: The operation's arguments.
        home: The state home.
        registry: The registry of the state home.
        operations: The log where progress is recorded.
        clock: Returns epoch milliseconds.
        closing: Set when the process is about to end; waiting operations then stop waiting.
        chance: Returns the given number of random bytes.
    """

    operation: Operation
    wanted: A
    home: StateHome
    registry: Registry
    operations: Operations
    clock: Callable[[], int]
    closing: threading.Event
    chance: Callable[[int], bytes] = os.urandom

    @property
    def control(self) -> Control:
        """The control interface of the jobs."""
        return Control(self.home, self.clock)

    def details(self) -> JobDetails:
        """Return the details of the operation's job.

        Raises:
            NotFound: The job does not exist.
        """
        return self.control.details(self.operation.job or "", batches=1)

    def teller(self) -> ProgressCallback:
        """Return a callback that records the operation's progress from time to time."""
        last = 0.0

        def tell(done: int, total: int, what: str) -> None:
            nonlocal last
            if self.closing.is_set():
                raise _server_ends()
            now = time.monotonic()
            if now - last >= _TELL_S:
                last = now
                self.operations.tell(self.operation, done, total, what)

        return tell

    def until(self, holds: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Wait until a condition holds.

        Raises:
            Unavailable: The time is up, or the server is shutting down.
        """
        deadline = time.monotonic() + timeout_s
        while not holds():
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"timed out after {timeout_s:.0f} s waiting until {what}",
                    code="HF-E5025",
                    hint="check the job with `holdfast status JOB`, then repeat the request",
                )
            if self.closing.wait(LOOK_S):
                raise _server_ends()


class Verb(Protocol[A]):
    """A kind of operation."""

    def run(self, work: OperationContext[A]) -> Mapping[str, Any]:
        """Run the operation and return its result.

        Raises:
            HoldfastError: The operation failed and was undone.
        """

    def recover(self, work: OperationContext[A]) -> Mapping[str, Any]:
        """Finish an operation that a killed process has begun, and return its result.

        Raises:
            HoldfastError: The operation was undone, or nothing had to be undone; the error says which.
        """


class RepeatableVerb(Verb[A], Protocol[A]):
    """A kind of operation that changes nothing, so that a killed one can be repeated."""

    def recover(self, work: OperationContext[A]) -> Mapping[str, Any]:
        """Repeat the operation."""
        return self.run(work)


def undone(operation: Operation, what: str) -> HoldfastError:
    """Return the error for an operation that a killed process has begun and that cannot be finished."""
    return Conflict(
        "the operation was undone, because the server was killed while it ran",
        code="HF-E4023",
        where=operation.operation_id,
        found=what,
        hint="repeat the request",
    )


def restart_undone(operation: Operation) -> HoldfastError:
    """Return the error for a restart whose supervisor has died."""
    return undone(operation, "the supervisor ended before the new driver had started")


def no_query_yet(job: str) -> Conflict:
    """Return the error for a job without a started query."""
    return Conflict(
        f"job {job!r} has not started a query yet",
        code="HF-E4024",
        hint=f"check the job with `holdfast status {job}`, and repeat the request when its query runs",
    )


def no_such_query(query: str, queries: Iterable[str]) -> Invalid:
    """Return the error for an unknown query of a job."""
    return Invalid(
        "unknown query",
        code="HF-E2228",
        found=query,
        expected=", ".join(queries) or "a job with queries",
        hint="list the job's queries with `holdfast status JOB`",
    )


def _server_ends() -> Unavailable:
    return Unavailable(
        "the server is shutting down",
        code="HF-E5026",
        hint="start the server again; it finishes or undoes this operation",
    )


_TOKEN_BYTES: Final = 8
STOP_S: Final = 24 * 3600.0


# Savepoints of queries: the address and the manifest of each, by the query's name.
Made = dict[str, tuple[str, Manifest]]


class TakeSavepointVerb:
    """Takes a savepoint of each query of a job.

    Each savepoint's manifest, which is written last, names the operation. That shows whether a killed
    operation has taken it.
    """

    def run(self, work: OperationContext[arguments.TakeSavepoint]) -> Mapping[str, Any]:
        """Take a savepoint of each query, or of none."""
        details = work.details()
        if work.wanted.running:
            work.control.running(details.status.job.name)
        return _Savepoints(work, details).take()

    def recover(self, work: OperationContext[arguments.TakeSavepoint]) -> Mapping[str, Any]:
        """Return the savepoints if all of them exist and are whole; else remove those that were taken.

        Raises:
            Conflict: A savepoint is missing or incomplete.
        """
        savepoints = _Savepoints(work, work.details())
        made = savepoints.keep_whole()
        if savepoints.complete(made):
            return _result(made)
        savepoints.take_away(made)
        raise undone(work.operation, f"{len(made)} of {len(savepoints.details.queries)} savepoints taken")


class StopVerb:
    """Stops a job after its batch, then takes a savepoint of each of its queries."""

    def run(self, work: OperationContext[arguments.TakeSavepoint]) -> Mapping[str, Any]:
        """Stop the job and take the savepoints.

        Raises:
            Conflict: The job does not run, or its supervisor ended before the job did.
        """
        details = work.details()
        job = work.control.running(details.status.job.name).job
        _Savepoints(work, details).require_possible()
        work.registry.request(job.name, "stop", work.clock())
        return self._await_and_take(work, job.name)

    def recover(self, work: OperationContext[arguments.TakeSavepoint]) -> Mapping[str, Any]:
        """Wait for the job's end and take the savepoints, if the killed process had asked the job to stop.

        Raises:
            Conflict: The job was not asked to stop, or has been started again since.
        """
        job = work.details().status.job
        began = work.operation.started_ms or work.operation.asked_ms
        if job.started_ms > began:
            raise undone(work.operation, "the job was stopped and has been started again since")
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
                f"job {job!r} failed while stopping, so no savepoint was taken",
                code="HF-E4025",
                found=f"{state.value}: {details.status.job.reason or 'the supervisor has ended'}",
                expected="a job that stopped after a batch",
                hint=f"read the reason with `holdfast status {job}`; the checkpoint is unchanged",
            )
        savepoints = _Savepoints(work, details)
        made = savepoints.keep_whole()
        if savepoints.complete(made):
            return _result(made)
        savepoints.take_away(made)
        return savepoints.take()


class DisposeVerb:
    """Deletes savepoints and the objects that no other savepoint of their catalogs needs."""

    def run(self, work: OperationContext[arguments.Dispose]) -> Mapping[str, Any]:
        """Delete the savepoints."""
        tell = work.teller()
        for savepoint in work.wanted.savepoints:
            delete(savepoint, tell=tell)
        return {"savepoints": list(work.wanted.savepoints)}

    def recover(self, work: OperationContext[arguments.Dispose]) -> Mapping[str, Any]:
        """Delete the savepoints that remain, and the objects left by deleted ones."""
        for savepoint in work.wanted.savepoints:
            catalog, _ = StateAddress.resolve(savepoint).open_savepoint()
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
            HoldfastError: A savepoint could not be taken, and those already taken were removed.
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

    def keep_whole(self) -> Made:
        """Keep the savepoints that were taken and are whole, and remove incomplete ones."""
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
        """Return True if there is a savepoint of each requested query."""
        return 0 < len(made) == len(self._chosen())

    def take_away(self, made: Made) -> None:
        """Remove the savepoints taken and the objects that no other savepoint needs."""
        catalog = self._catalog()
        for uri, _ in made.values():
            self._remove(catalog, StateAddress.resolve(uri).open_savepoint()[1])
        _sweep(self.work, catalog)

    def require_possible(self) -> None:
        """Check the directory and the label before the job is stopped.

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
                hint = "try again after the first batch"
                raise NotFound(
                    f"query {query.name!r} has not committed a batch yet",
                    code="HF-E3045",
                    where=query.checkpoint,
                    hint=hint,
                )
        ids(catalog)

    def _catalog(self) -> Storage:
        return open_storage(self.work.wanted.catalog, "catalog")

    def _chosen(self) -> list[QueryStarted]:
        """Return the chosen queries: all, unless some are named."""
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
            without_expired=without_expired() if work.wanted.drop_expired else None,
            tell=work.teller(),
        )
        return taken.uri, taken.manifest

    def _token(self, query: str) -> bytes:
        """Return the name of a query's take in the catalog, derived from the operation's id."""
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


@dataclass(frozen=True, slots=True)
class CheckpointMaker:
    """Creates a checkpoint from which a query continues.

    Attributes:
        verb: `restore` or `fork`; recorded as the origin of the new checkpoint.
        make: The function that creates the checkpoint.
    """

    verb: str
    make: Callable[..., Restored]

    def run(self, work: OperationContext[MakeCheckpoint]) -> Mapping[str, Any]:
        """Create the checkpoint.

        Raises:
            Conflict: The target exists already.
            Corrupt: The savepoint is damaged.
        """
        return self.make(work.wanted.savepoint, work.wanted.checkpoint, tell=work.teller()).as_dict()

    def recover(self, work: OperationContext[MakeCheckpoint]) -> Mapping[str, Any]:
        """Finish the checkpoint that a killed process began; if that fails, remove it.

        Raises:
            HoldfastError: The checkpoint could not be finished. A complete checkpoint, or one that a
                different operation created, is not removed.
        """
        target = open_storage(work.wanted.checkpoint)
        try:
            return self.run(work)
        except HoldfastError as error:
            if target.size(layout.METADATA) is not None or not self._was_made_by_us(
                target, work.wanted.savepoint
            ):
                raise  # it is complete and in use, or another's
            withdraw(target)
            raise undone(work.operation, error.fact) from error

    def _was_made_by_us(self, target: Storage, savepoint: str) -> bool:
        """Return True if an operation of this kind created the target from this savepoint."""
        try:
            origin = foreign_json(target.read(layout.ORIGIN))
        except (NotFound, ValueError):
            return False
        mark = (self.verb, open_storage(savepoint).uri)
        return isinstance(origin, dict) and (origin.get("operation"), origin.get("savepoint")) == mark


BATCH_S: Final = 3600.0


class AwaitCheckpointVerb(RepeatableVerb[arguments.AwaitCheckpoint]):
    """Waits until all that a job has begun to work on is committed.

    The checkpoint then contains everything read so far. A batch that runs at the time of the request has to
    commit; where none runs, the newest committed batch contains everything already.
    """

    def run(self, work: OperationContext[arguments.AwaitCheckpoint]) -> Mapping[str, Any]:
        """Wait, and return the committed batch of each query.

        Raises:
            Conflict: The job does not run, or has ended meanwhile.
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


class VerifyVerb(RepeatableVerb[arguments.Verify]):
    """Verifies a savepoint."""

    def run(self, work: OperationContext[arguments.Verify]) -> Mapping[str, Any]:
        """Verify the savepoint."""
        return verify(work.wanted.savepoint, deep=work.wanted.deep, tell=work.teller()).as_dict()


class DiffVerb(RepeatableVerb[arguments.Diff]):
    """Compares two states."""

    def run(self, work: OperationContext[arguments.Diff]) -> Mapping[str, Any]:
        """Compare by keys, or by files only."""
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
