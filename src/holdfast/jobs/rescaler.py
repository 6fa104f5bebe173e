"""Rescale a running job by swapping its checkpoints between two drivers.

A separate process creates the new checkpoints next to the old ones; it may start Spark, which a supervisor
never does. It holds a lock while it lives and ends with its parent.

Each new checkpoint is exchanged with the old one atomically, so that the query always finds a whole
checkpoint. On S3 and HDFS the new one becomes the successor of the old one. The old ones are kept. After a
supervisor was killed, a rescale is undone if no checkpoint has been exchanged, else finished.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, cast

from holdfast.changes.partitions import rescale_between_drivers
from holdfast.changes.working_copy import lead_to
from holdfast.checkpoints.checkpoint import read
from holdfast.checkpoints.verification.verifying import verify
from holdfast.config.checks import local_path
from holdfast.config.settings import make_directory
from holdfast.errors import Conflict, Corrupt, HoldfastError, Internal, Unavailable, Unsupported
from holdfast.jobs.background import error_of
from holdfast.jobs.candidacy import Candidacy
from holdfast.jobs.events import Say
from holdfast.jobs.operation_verbs import no_such_query, undone
from holdfast.jobs.pending_rescale import (
    VERB,
    CheckpointMove,
    PendingRescale,
    discard,
    inode_of,
    is_consistent,
    place_of,
    put_in_place,
    result_of,
)
from holdfast.jobs.processes.driver import DriverSpec, log_to
from holdfast.jobs.processes.driver_process import DriverProcess
from holdfast.jobs.processes.protocol import (
    Channel,
    ChildSpec,
    Message,
    Refused,
    RescaleDone,
    RescaleProgress,
    die_with_peer,
    not_for,
)
from holdfast.jobs.registry.operation_log import Operation, Operations, Rescale, decode
from holdfast.jobs.registry.registry import Registry
from holdfast.jobs.state_home import StateHome, SupervisorLock
from holdfast.model import QueryStarted
from holdfast.ownership.checkpoint_claim import CheckpointClaim
from holdfast.ownership.checkpoint_lease import can_have_successors
from holdfast.ownership.election import CannotLead, LeadershipLost
from holdfast.storage import open_storage
from holdfast.storage.atomic_swap import exchange, require_exchange, sandbox
from holdfast.storage.file_lock import FileLock
from holdfast.storage.successors import (
    current_address,
    first_address,
    list_successors,
    parse_successor,
    publish_successor,
    retire,
    successor_address,
    unused_number,
)


@dataclass(frozen=True, slots=True)
class RescaleSpec(ChildSpec):
    """The instructions of a rescaling process.

    Attributes:
        job: The job.
        moves: The checkpoints to create.
        log: The file for Spark's log.
        master: The Spark master.
    """

    job: str
    moves: tuple[CheckpointMove, ...]
    log: str
    master: str | None


def moves_of(
    operation_id: str, wanted: Mapping[str, int], queries: Mapping[str, QueryStarted]
) -> tuple[CheckpointMove, ...]:
    """Return the new locations. Their names contain the operation, so that they are unique.

    Raises:
        Invalid: The job has no such query.
        Unsupported: A checkpoint on this storage cannot be replaced.
    """
    moves = []
    for query, partitions in wanted.items():
        if query not in queries:
            raise no_such_query(query, queries)
        place = local_path(queries[query].checkpoint)
        if place is None and can_have_successors(queries[query].checkpoint):
            current = current_address(queries[query].checkpoint)
            first = first_address(current)
            made = successor_address(first, unused_number(first))
            moves.append(CheckpointMove(query, current, made, current, partitions))
            continue
        if place is None:
            raise Unsupported(
                "a running job cannot be rescaled if its checkpoint is on storage that cannot replace it",
                code="HF-E7086",
                where=queries[query].checkpoint,
                found=f"a checkpoint at {queries[query].checkpoint.partition(':')[0]}:",
                expected="a checkpoint at file:, s3:, gs:, abfss: or webhdfs:",
                hint="stop the job, rescale its checkpoint with `holdfast rescale CHECKPOINT --partitions N"
                " --confirm-stopped`, and run the job on the result",
            )
        mark = operation_id[:12]
        moves.append(
            CheckpointMove(
                query,
                f"file://{place}",
                f"file://{place.with_name(f'{place.name}.rescale-{mark}')}",
                f"file://{place.with_name(f'{place.name}.before-{mark}')}",
                partitions,
            )
        )
    return tuple(moves)


def moves_from(steps: Mapping[str, Any]) -> tuple[CheckpointMove, ...]:
    """Return the moves recorded by an operation."""
    return tuple(CheckpointMove(**move) for move in steps.get("moves", ()))


def life_of(home: Path, job: str) -> FileLock:
    """Return the lock that a job's rescaling process holds while it lives."""
    return FileLock(home / "jobs" / job / "rescale.lock")


def run(spec: RescaleSpec, channel: Channel) -> None:
    """Create the new checkpoints one after the other; every ending is reported."""

    def tell(done: int, total: int, what: str) -> None:
        channel.send(RescaleProgress(done, total, what))

    try:
        for move in spec.moves:
            rescale_between_drivers(
                move.checkpoint,
                move.made,
                partitions=move.partitions,
                master=spec.master,
                home=spec.home,
                tell=tell,
            )
    except HoldfastError as error:
        channel.send(Refused(error))
    except Exception as error:  # whatever it is, the supervisor has to learn of it
        channel.send(Refused(error_of(error)))
    else:
        channel.send(RescaleDone())


def main() -> None:
    """Run as a child of a supervisor."""
    spec = RescaleSpec.inherited()
    channel = Channel.inherited()
    log_to(spec.log)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    life = life_of(Path(spec.home), spec.job)
    if not life.take():
        channel.send(
            Refused(
                Conflict(
                    "the job cannot be rescaled while an earlier rescale is running",
                    code="HF-E4032",
                    hint="repeat the rescale when the earlier one has ended",
                )
            )
        )
        return
    die_with_peer(channel)
    run(spec, channel)
    sys.stdout.flush()
    os.killpg(os.getpid(), signal.SIGKILL)  # Spark's JVM with it: there is nothing left to tidy


if __name__ == "__main__":
    main()


COMMAND: Final = (sys.executable, "-m", "holdfast.jobs.rescaler")
_LOOK_S: Final = 0.2
_TELL_S: Final = 0.5
_ORPHAN_S: Final = 30.0
_OWNER: Final = "supervisor "
# The step of an operation whose checkpoints only a leader may change.
_ELECTED: Final = "elected"
_AGAIN: Final = (
    "repeat the rescale; if it fails again, stop the job, and run `holdfast rescale CHECKPOINT"
    " --partitions N --confirm-stopped`"
)

Attend = Callable[[], bool]


def owner_of(job: str) -> str:
    """Return the owner name under which a job's supervisor runs operations."""
    return f"{_OWNER}{job}"


def supervised_by(owner: str) -> str | None:
    """Return the job of an owner that is a supervisor, else None."""
    return owner.removeprefix(_OWNER) if owner.startswith(_OWNER) else None


class Rescaler:
    """The rescales of one job, run by the supervisor that holds the job's lock.

    Args:
        home: The state home.
        job: The job's name.
        spec: The job file and the Spark master.
        clock: Returns epoch milliseconds.
        candidacy: The candidacy by which this supervisor leads the job; None if it runs the job alone.
    """

    def __init__(
        self,
        home: StateHome,
        job: str,
        spec: DriverSpec,
        clock: Callable[[], int],
        candidacy: Candidacy | None = None,
    ) -> None:
        self._candidacy = candidacy
        self._home = home
        self._job = job
        self._spec = spec
        self._clock = clock
        self._operations = Operations(home)

    def recover(self) -> None:
        """Finish or undo what a former supervisor has left, before the checkpoints are used.

        Raises:
            LeadershipLost: The rescale of a former leader cannot be finished at the moment, or a later leader
                finishes it.
        """
        if self._candidacy is not None:
            _recover_pending(self._candidacy)
        for left in self._operations.running():
            if left.verb != VERB or left.owner != owner_of(self._job):
                continue
            if _ELECTED in left.steps:
                _settle(self._operations, left, self._clock)
            elif self._candidacy is None:
                _recover(self._home, self._operations, left, self._clock)
            elif not left.steps:
                error = undone(left, "its leader was lost before it began the rescale")
                with suppress(HoldfastError):  # a different process was quicker
                    self._operations.fail(left, error.as_dict(), self._clock())

    def refuse_what_waits(self) -> None:
        """Fail the requests to a former supervisor that it never began."""
        for asked in self._operations.waiting(VERB, self._job):
            error = Conflict(
                "the supervisor ended before it began the rescale, so nothing was changed",
                code="HF-E4033",
                where=asked.operation_id,
                hint="repeat the rescale",
            )
            refuse(self._operations, asked, owner_of(self._job), error, self._clock())

    def carry_out(self, attend: Attend, say: Say) -> None:
        """Carry out all requested rescales while no driver runs.

        Args:
            attend: Called repeatedly; False gives up, and the checkpoints are left unchanged.
            say: Called with progress and results.

        Raises:
            LeadershipLost: A different supervisor leads the job, or may lead it.
        """
        say("rescaling", "changing the number of partitions")
        for asked in self._operations.waiting(VERB, self._job):
            mine = self._operations.begin(asked.operation_id, owner_of(self._job), self._clock())
            if mine is None:
                continue
            try:
                done = self._operations.complete(mine, self._do(mine, attend), self._clock())
                say("rescaled", "rescaled", **done.as_dict())
            except LeadershipLost:
                raise  # the next leader finds out how it ended
            except HoldfastError as error:
                done = self._operations.fail(mine, error.as_dict(), self._clock())
                say("rescaled", f"the rescale failed: {error.fact}", **done.as_dict())

    def _do(self, operation: Operation, attend: Attend) -> Mapping[str, Any]:
        queries = {query.name: query for query in Registry(self._home.registry).queries(self._job)}
        wanted = cast("Rescale", decode(VERB, operation.arguments))
        moves = moves_of(operation.operation_id, wanted.partitions, queries)
        if self._candidacy is not None:
            return self._do_as_leader(self._candidacy, operation, moves, attend)
        operation = self._operations.note(operation, moves=[asdict(move) for move in moves])
        try:
            self._make(operation, moves, attend)
            for move in moves:
                if local_path(move.made) is not None:
                    lead_to(open_storage(move.made), move.checkpoint)
            if not attend():  # the lease of a checkpoint that is not local may be lost
                raise _stopped()
        except BaseException:
            _undo(moves)
            raise
        return _swap(self._operations, operation, moves)

    def _do_as_leader(
        self, candidacy: Candidacy, operation: Operation, moves: tuple[CheckpointMove, ...], attend: Attend
    ) -> Mapping[str, Any]:
        """Rescale so that a later leader finishes or discards it, whenever this one is lost."""
        for folder in {place.parent for move in moves if (place := local_path(move.made)) is not None}:
            with sandbox(folder, VERB, operation.operation_id[:12]) as work:
                require_exchange(work)
        pending = PendingRescale(moves)
        # First the record: as long as it names no rescale, a later leader may use the same number.
        candidacy.note_now(pending=pending)
        try:
            steps = {"moves": [asdict(move) for move in moves], _ELECTED: True}
            operation = self._operations.note(operation, **steps)
            self._make(operation, moves, attend)
            for move in moves:
                if local_path(move.made) is not None:
                    lead_to(open_storage(move.made), move.checkpoint)
                _check(move.made, move.partitions)
            pending = pending.decided()
            if not attend():
                raise _stopped()
        except BaseException as error:
            discard(moves)
            if not isinstance(error, LeadershipLost):
                candidacy.note_now(pending=None)
            raise
        candidacy.note_now(pending=pending)
        # From here on it is decided: nothing is undone, by this or a later leader.
        _put_in_place(candidacy, pending)
        if not result_of(moves):
            raise Conflict(
                "a checkpoint was changed during the rescale, so it was not replaced",
                code="HF-E4097",
                where=operation.operation_id,
                hint="repeat the rescale",
            )
        return _report({_address_of(move): move for move in moves})

    def _make(self, operation: Operation, moves: tuple[CheckpointMove, ...], attend: Attend) -> None:
        log = self._home.job(self._job) / f"rescale-{operation.operation_id[:12]}.log"
        make_directory(log.parent)
        spec = RescaleSpec(
            self._spec.target, str(self._home.path), self._job, moves, str(log), self._spec.master
        )
        try:
            process = DriverProcess.start(spec, COMMAND, quiet=True)
        except OSError as error:
            raise Unavailable(
                "the rescaling process cannot be started",
                code="HF-E5028",
                where=sys.executable,
                found=error.strerror or str(error),
                hint=_AGAIN,
            ) from error
        last: Message | None = None
        try:
            last = self._follow(process, operation, attend)
        finally:
            process.kill()
            process.reap()
        if last is None:
            raise Internal(
                "the rescaling process ended without reporting a result",
                code="HF-E9024",
                where=str(log),
                hint=_AGAIN,
            )
        if isinstance(last, Refused):
            raise last.error

    def _follow(self, process: DriverProcess, operation: Operation, attend: Attend) -> Message | None:
        """Forward progress until the process ends; return its last message, or None."""
        told = 0.0
        with selectors.DefaultSelector() as selector:
            selector.register(process.channel, selectors.EVENT_READ)
            while True:
                if not attend():
                    raise _stopped()
                if not selector.select(_LOOK_S):
                    continue
                messages = process.channel.receive()
                if messages is None:
                    return None
                for message in messages:
                    if isinstance(message, (RescaleDone, Refused)):
                        return message
                    if not isinstance(message, RescaleProgress):
                        raise not_for("a rescale", message)
                    if time.monotonic() - told > _TELL_S:
                        told = time.monotonic()
                        self._operations.tell(operation, message.done, message.total, message.what)


def _stopped() -> Conflict:
    return Conflict(
        "the job was stopped during the rescale, so the checkpoints were left unchanged",
        code="HF-E4034",
        hint="start the job and repeat the rescale",
    )


def refuse(operations: Operations, asked: Operation, owner: str, error: HoldfastError, now_ms: int) -> None:
    """Fail a rescale that has not begun, unless another process begins it first."""
    mine = operations.begin(asked.operation_id, owner, now_ms)
    if mine is not None:
        operations.fail(mine, error.as_dict(), now_ms)


def recover_left_behind(
    home: StateHome, operations: Operations, left: Operation, clock: Callable[[], int]
) -> None:
    """Finish or undo the rescale of a job whose supervisor has died."""
    if left.job is None:
        return
    if _ELECTED in left.steps:
        _settle(operations, left, clock)
        return
    lock = SupervisorLock(home, left.job)
    if not lock.take():
        return
    try:
        checkpoint = Registry(home.registry).job(left.job).checkpoint
        if local_path(checkpoint) is None and "swapping" in left.steps:
            return  # only the owner of the lease may publish: the job's next supervisor
        if CheckpointClaim(checkpoint, left.job, home.path).until_free(0):
            _recover(home, operations, left, clock)
    finally:
        lock.release()


def _recover_pending(candidacy: Candidacy) -> None:
    """Finish or discard the rescale that a former leader has recorded.

    Raises:
        LeadershipLost: It cannot be finished at the moment, or a later leader finishes it.
    """
    pending = None if candidacy.record is None else candidacy.record.pending
    if pending is None:
        return
    if pending.marks is not None and is_consistent(pending):
        _put_in_place(candidacy, pending)
        return
    # First the record: a decision that a suspended leader records late is not read any more.
    candidacy.note_now(pending=None)
    if is_consistent(pending):
        discard(pending.moves)


def _put_in_place(candidacy: Candidacy, pending: PendingRescale) -> None:
    """Finish a decided rescale.

    Raises:
        CannotLead: The storage does not answer; a later leader tries again.
        LeadershipLost: A later leader finishes it.
    """
    try:
        put_in_place(pending, candidacy.token or 0)
    except LeadershipLost:
        raise
    except (HoldfastError, OSError) as error:
        found = f"{error.fact}: {error.found}" if isinstance(error, HoldfastError) else str(error)
        raise CannotLead(
            "the rescaled checkpoints cannot be put in place at the moment",
            where=pending.moves[0].checkpoint,
            found=found,
        ) from error
    candidacy.note_now(pending=None)


def _settle(operations: Operations, left: Operation, clock: Callable[[], int]) -> None:
    """Record how the rescale of a former leader has ended, as the checkpoints show; change none of them."""
    moves = moves_from(left.steps)
    with suppress(HoldfastError):  # a different process was quicker, or the storage does not answer
        replaced = result_of(moves)
        if replaced:
            operations.complete(left, _report({_address_of(move): move for move in moves}), clock())
        elif replaced is False:
            error = undone(left, "the next leader found that the rescale was not decided")
            operations.fail(left, error.as_dict(), clock())


def _address_of(move: CheckpointMove) -> str:
    """Return the address of the checkpoint after a move."""
    return move.made if local_path(move.made) is None else move.checkpoint


def _recover(home: StateHome, operations: Operations, left: Operation, clock: Callable[[], int]) -> None:
    """Recover a rescale while holding the job's lock."""
    life = life_of(home.path, left.job or "")
    deadline = time.monotonic() + _ORPHAN_S
    while life.is_held():  # it ends as soon as it finds its supervisor gone
        if time.monotonic() > deadline:
            return
        time.sleep(_LOOK_S)
    moves = moves_from(left.steps)
    try:
        if "swapping" in left.steps:
            operations.complete(left, _swap(operations, left, moves), clock())
        else:
            _undo(moves)
            operations.fail(left, undone(left, "no checkpoint had been replaced yet").as_dict(), clock())
    except HoldfastError as error:
        with suppress(HoldfastError):
            operations.fail(left, error.as_dict(), clock())


def _swap(
    operations: Operations, operation: Operation, moves: tuple[CheckpointMove, ...]
) -> Mapping[str, Any]:
    """Exchange old and new checkpoints; if interrupted, any process can finish it.

    A directory's inode number shows which of the two it is: the number moves with the directory.
    """
    if all(local_path(move.made) is None for move in moves):
        return _succeed(operations, operation, moves)
    noted = operation.steps.get("swapping")
    if noted is None:
        noted = {move.query: inode_of(place_of(move.made)) for move in moves}
        operation = operations.note(operation, swapping=noted)
    try:
        for move in moves:
            here, there = place_of(move.checkpoint), place_of(move.made)
            if inode_of(here) != noted[move.query]:
                exchange(here, there)
        for move in moves:
            _check(move.checkpoint, move.partitions)
    except HoldfastError:
        _take_back(moves, noted)
        raise
    for move in moves:
        if place_of(move.made).exists():
            place_of(move.made).rename(place_of(move.kept))
    return _report({move.checkpoint: move for move in moves})


def _report(moves: Mapping[str, CheckpointMove]) -> Mapping[str, Any]:
    """Return the result of the rescale, from the moves by the address of the new checkpoint."""
    return {
        "queries": {
            move.query: {
                "checkpoint": address,
                "partitions": move.partitions,
                "kept": move.kept,
                "batch": read(open_storage(address)).batch_id,
            }
            for address, move in moves.items()
        }
    }


def _succeed(
    operations: Operations, operation: Operation, moves: tuple[CheckpointMove, ...]
) -> Mapping[str, Any]:
    """Replace the old checkpoints by successors; if interrupted, the job's next supervisor finishes it.

    A successor that was published stays, also if others cannot be published: its query may use it already.
    """
    if "swapping" not in operation.steps:
        try:
            for move in moves:
                _check(move.made, move.partitions)
        except HoldfastError:
            _undo(moves)
            raise
        operations.note(operation, swapping={move.query: 0 for move in moves})
    try:
        for move in moves:
            first, number = parse_successor(move.made)
            if number not in list_successors(first):
                publish_successor(first, number, VERB)
            retire(open_storage(move.checkpoint), move.made)
    except HoldfastError:
        discard(moves)  # the next owner of the lease makes void what is left
        raise
    return _report({move.made: move for move in moves})


def _check(checkpoint: str, partitions: int) -> None:
    """Check that the new checkpoint is whole and has the requested partitions."""
    storage = open_storage(checkpoint)
    verification = verify(storage)
    if not verification.ok:
        raise Corrupt(
            "the rescaled checkpoint is damaged, so the former checkpoint was restored",
            code="HF-E6031",
            where=f"{checkpoint}/{verification.problems[0].file}",
            found=verification.problems[0].what,
            hint=_AGAIN,
        )
    spread = {operator.partitions for operator in read(storage).operators if not operator.gathered}
    if spread - {partitions}:
        raise Corrupt(
            (
                "the rescaled checkpoint has the wrong number of partitions, so the former checkpoint"
                " was restored"
            ),
            code="HF-E6032",
            where=checkpoint,
            found=", ".join(str(number) for number in sorted(spread)),
            expected=str(partitions),
            hint=_AGAIN,
        )


def _undo(moves: tuple[CheckpointMove, ...]) -> None:
    """Delete the new checkpoints, which were never used.

    Elsewhere than on a disk, a later owner may have used the number of one that was not begun.
    """
    for move in moves:
        if local_path(move.made) is None:
            discard((move,))
        else:
            shutil.rmtree(place_of(move.made), ignore_errors=True)


def _take_back(moves: tuple[CheckpointMove, ...], noted: Mapping[str, int]) -> None:
    """Restore the old checkpoints and delete the new ones."""
    for move in moves:
        here, there = place_of(move.checkpoint), place_of(move.made)
        if there.exists() and inode_of(here) == noted[move.query]:
            exchange(here, there)
        if there.exists() and inode_of(there) == noted[move.query]:
            shutil.rmtree(there, ignore_errors=True)
