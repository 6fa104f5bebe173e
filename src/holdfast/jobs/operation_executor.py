"""Execute requested operations on threads, and finish or undo interrupted ones."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from holdfast.changes.take_and_restore import fork, restore
from holdfast.errors import Conflict, Corrupt, HoldfastError, Invalid, NotFound, Unsupported
from holdfast.jobs.background import BackgroundWorker, error_of
from holdfast.jobs.operation_verbs import (
    AwaitCheckpointVerb,
    CheckpointMaker,
    DiffVerb,
    DisposeVerb,
    OperationContext,
    StopVerb,
    TakeSavepointVerb,
    Verb,
    VerifyVerb,
    restart_undone,
)
from holdfast.jobs.pending_rescale import VERB as RESCALE
from holdfast.jobs.registry.client import Control
from holdfast.jobs.registry.operation_log import RESTART, Operation, Operations, decode
from holdfast.jobs.registry.registry import Registry
from holdfast.jobs.rescaler import recover_left_behind, refuse, supervised_by
from holdfast.jobs.state_home import StateHome, SupervisorLock
from holdfast.savepoints.address import StateAddress
from holdfast.savepoints.digests import PendingDigests
from holdfast.storage.file_lock import FileLock

VERBS: Final[Mapping[str, Verb[Any]]] = {
    "savepoint": TakeSavepointVerb(),
    "stop": StopVerb(),
    "dispose": DisposeVerb(),
    "checkpoint": AwaitCheckpointVerb(),
    "verify": VerifyVerb(),
    "diff": DiffVerb(),
    "fork": CheckpointMaker("fork", fork),
    "restore": CheckpointMaker("restore", restore),
}
# Those whose result lists the `savepoints` that they have taken.
TAKES: Final = ("savepoint", "stop")


WORKERS: Final = 2
LOOK_S: Final = 0.25
MEND_S: Final = 2.0
_DIGEST_AGAIN_S: Final = 60.0
# Operations that are looked through for savepoints without digests.
_DIGESTED: Final = 100
_FOLDER: Final = "operating"


class OperationExecutor:
    """Carries out the operations of a state home; several executors may run in several processes.

    Args:
        home: The state home.
        clock: Returns epoch milliseconds.
        workers: The number of operations to run at a time.
    """

    def __init__(self, home: StateHome, clock: Callable[[], int], workers: int = WORKERS) -> None:
        self._home = home
        self._clock = clock
        self._operations = Operations(home)
        self._registry = Registry(home.registry)
        self.owner = f"server {os.urandom(8).hex()}"
        self._lock = _life(home, self.owner)
        # Set when the process is about to end; what waits for something gives up then.
        self._closing = threading.Event()
        self._digests = PendingDigests(clock, self._goes_on, pause=self._closing.wait)
        self._digested: set[str] = set()
        self._doing = [
            BackgroundWorker(f"holdfast-operations-{number}", self._do, self._goes_on)
            for number in range(workers)
        ]
        self._digesting = BackgroundWorker("holdfast-digests", self._digest, self._goes_on)
        recovering = BackgroundWorker("holdfast-recovery", self._recover, self._goes_on)
        self._workers = (*self._doing, self._digesting, recovering)

    def start(self) -> None:
        """Begin."""
        self._lock.take()
        for worker in self._workers:
            worker.start()
            worker.wake()

    def wake(self) -> None:
        """Check for requested operations at once."""
        for worker in self._doing:
            worker.wake()

    def settle(self, timeout_s: float) -> None:
        """Wait until all requested operations are done, up to the timeout."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and any(worker.alive for worker in self._workers):
            asked = any(self._operations.waiting(verb) for verb in VERBS)
            if not asked and all(running.owner != self.owner for running in self._operations.running()):
                return
            self._closing.wait(LOOK_S)

    def ended_since(self, since_ms: int) -> list[str]:
        """Return the operations that this executor has ended since then."""
        newest = self._operations.newest(limit=50)
        return [
            operation.operation_id
            for operation in newest
            if operation.owner == self.owner and (operation.ended_ms or -1) >= since_ms
        ]

    def close(self, timeout_s: float = 5.0) -> None:
        """Stop; an operation that exceeds the timeout is finished or undone by the next process."""
        self._closing.set()
        deadline = time.monotonic() + timeout_s
        for worker in self._workers:
            worker.abandon()
        for worker in self._workers:
            worker.close(max(0.0, deadline - time.monotonic()))
        if not any(worker.alive for worker in self._workers):
            self._lock.release()
            self._lock.clear()

    def do_one(self) -> bool:
        """Run the oldest waiting operation; False if there is none."""
        operation = self._operations.claim(self.owner, VERBS, self._clock())
        if operation is None:
            return False
        self._carry_out(operation)
        return True

    def recover(self) -> None:
        """Finish or undo the operations of dead owners, and fail those that cannot run any more."""
        for left in self._operations.running():
            if left.owner is None or left.owner == self.owner or self._lives(left.owner):
                continue
            if left.verb == RESCALE:
                recover_left_behind(self._home, self._operations, left, self._clock)
                continue
            mine = self._operations.take_over(left, self.owner)
            if mine is not None and left.verb == RESTART:
                self._operations.fail(mine, restart_undone(left).as_dict(), self._clock())
            elif mine is not None:
                self._carry_out(mine, recover=True)
        for verb, judge in ((RESCALE, self._not_rescaled), (RESTART, self._not_restarted)):
            for asked in self._operations.waiting(verb):
                why = None if asked.job is None else judge(asked.job)
                if why is not None:
                    refuse(self._operations, asked, self.owner, why, self._clock())
        for left_behind in (self._home.path / _FOLDER).glob("*.lock"):
            FileLock(left_behind).clear()

    def digest(self) -> None:
        """Compute the pending digests of recent savepoints, including those of a killed server."""
        for operation in self._operations.newest(limit=_DIGESTED):
            result = operation.result or {}
            for taken in result.get("savepoints", ()) if operation.verb in TAKES else ():
                uri = taken["savepoint"]
                if uri not in self._digested:
                    with suppress(Conflict, Corrupt, Invalid, NotFound, Unsupported):  # it stays pending
                        catalog, savepoint_id = StateAddress.resolve(uri).open_savepoint()
                        self._digests.one(catalog, savepoint_id)
                    if self._closing.is_set():
                        return
                    self._digested.add(uri)

    def _not_rescaled(self, job: str) -> HoldfastError | None:
        """Return the error for a job without a supervisor that could rescale it, or None."""
        leader = self._registry.leader(job)
        if leader is not None and leader.lives(self._clock()):
            return None
        if SupervisorLock(self._home, job).is_held():
            return None
        return Conflict(
            f"job {job!r} cannot be rescaled while it runs, because it has no supervisor",
            code="HF-E4022",
            hint="stop the job, rescale its checkpoint with `holdfast rescale CHECKPOINT --partitions N"
            " --confirm-stopped`, and run the job on the result",
        )

    def _not_restarted(self, job: str) -> HoldfastError | None:
        """Return the error for a job without a supervisor that could restart it, or None."""
        try:
            Control(self._home, self._clock).running(job)
        except (Conflict, NotFound, Unsupported) as error:
            return error
        return None

    def _carry_out(self, operation: Operation, *, recover: bool = False) -> None:
        """Run an operation and record how it ends, unless another process has taken it over."""
        try:
            try:
                verb, work = VERBS[operation.verb], self._context(operation)
                result = verb.recover(work) if recover else verb.run(work)
            except Exception as error:  # whatever it is, the others go on
                if self._closing.is_set():
                    return  # it did not fail: the server ends, and the next one goes on with it
                self._operations.fail(operation, error_of(error).as_dict(), self._clock())
            else:
                self._operations.complete(operation, result, self._clock())
                self._digesting.wake()
        except HoldfastError:
            return

    def _context(self, operation: Operation) -> OperationContext[Any]:
        wanted = decode(operation.verb, operation.arguments)
        home, registry, operations = self._home, self._registry, self._operations
        return OperationContext(operation, wanted, home, registry, operations, self._clock, self._closing)

    def _lives(self, owner: str) -> bool:
        job = supervised_by(owner)
        if job is not None:
            leader = self._registry.leader(job)  # maybe on a machine whose locks are not visible here
            is_led = leader is not None and leader.lives(self._clock())
            return is_led or SupervisorLock(self._home, job).is_held()
        return _life(self._home, owner).is_held()

    def _goes_on(self) -> bool:
        return not self._closing.is_set()

    def _do(self) -> float:
        with suppress(HoldfastError):  # the file is busy or gone; it is tried again
            if self.do_one():
                return 0.0
        return LOOK_S

    def _digest(self) -> float | None:
        try:
            self.digest()
        except HoldfastError:
            return _DIGEST_AGAIN_S  # the file is busy, or a catalog does not answer
        return None

    def _recover(self) -> float:
        with suppress(HoldfastError):  # the file is busy or gone; it is tried again
            self.recover()
        return MEND_S


def _life(home: StateHome, owner: str) -> FileLock:
    """Return the lock that an owner holds while it lives."""
    return FileLock(home.path / _FOLDER / f"{owner.replace(' ', '-')}.lock")
